// Selection of frozen parameters by regular expression.
#include "model/freeze.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::model {
namespace freeze_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kNames{
    "h.0.attn.weight", "h.1.attn.weight", "h.10.attn.weight", "wte.weight"};

std::string message_of(const std::vector<std::string>& patterns) {
  try {
    frozen_parameters(kNames, patterns);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Freeze, PatternsAreFoundAnywhereInANameAndJoined) {
  const auto frozen = [](const std::vector<std::string>& patterns) {
    return frozen_parameters(kNames, patterns);
  };
  EXPECT_THAT(frozen({}), ElementsAre());
  EXPECT_THAT(frozen({"h\\.1\\."}), ElementsAre("h.1.attn.weight"));
  EXPECT_THAT(frozen({"^w", "\\.0\\."}), ElementsAre("h.0.attn.weight", "wte.weight"));
}

TEST(Freeze, MistakesAreTold) {
  EXPECT_THAT(message_of({"h.0", "(wte"}), HasSubstr("'(wte' is not a regular expression"));
  EXPECT_THAT(message_of({"embed"}), HasSubstr("'embed' matches no parameter name"));
  EXPECT_THAT(message_of({"weight"}), HasSubstr("leaves no trainable parameter"));
}

}  // namespace freeze_test
}  // namespace lockstep::model
