// Tests patterns of parameter names.
#include "base/name_pattern.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace name_pattern_test {

TEST(NamePattern, IsLookedForAtAnyPlace) {
  const NamePattern pattern("a.key", "layers\\.1\\.");
  EXPECT_TRUE(pattern.is_in("model.layers.1.mlp.weight"));
  EXPECT_FALSE(pattern.is_in("model.layers.11.mlp.weight"));
  EXPECT_FALSE(NamePattern("a.key", "^layers").is_in("model.layers.1.weight"));
  EXPECT_TRUE(NamePattern("a.key", "").is_in("anything"));
}

TEST(NamePattern, SaysWhichKeyIsWrong) {
  try {
    NamePattern("a.key", "layers(");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_EQ(error.message().find("a.key: 'layers(' is not a regular expression"), 0U);
    EXPECT_NE(error.remedy().find("backslash"), std::string::npos);
  }
}

TEST(NamePattern, ShowsNamesWhereItIsFoundInNone) {
  const NamePattern pattern("a.key", "query");
  std::vector<std::string> names;
  for (int i = 0; i < 13; ++i) {
    names.push_back("layers." + std::to_string(i));
  }
  try {
    pattern.check_found_in(names);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "a.key: 'query' matches no parameter name");
    EXPECT_NE(error.remedy().find("layers.11, ..."), std::string::npos) << error.remedy();
  }
  names.push_back("the.query");
  EXPECT_NO_THROW(pattern.check_found_in(names));
}

}  // namespace name_pattern_test
}  // namespace lockstep
