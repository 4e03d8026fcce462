// Tests of the rate limit for log lines about refused agents.
#include "launch/agent/refusals.h"

#include <gtest/gtest.h>

#include "base/format.h"

namespace lockstep::launch {
namespace refusals_test {

const Refusals::Clock::time_point kBegin;

TEST(Refusals, HaveOneLineForAnAddressAndMinute) {
  Refusals refusals;
  EXPECT_EQ(refusals.add("10.0.0.1", "no", kBegin), "refused an agent at 10.0.0.1: no");
  EXPECT_EQ(refusals.add("10.0.0.1", "no", kBegin), "");
  EXPECT_EQ(refusals.add("10.0.0.1", "no", kBegin + Refusals::kPause / 2), "");
  EXPECT_EQ(refusals.add("10.0.0.2", "no", kBegin), "refused an agent at 10.0.0.2: no");
  EXPECT_EQ(
      refusals.add("10.0.0.1", "never", kBegin + Refusals::kPause),
      "refused an agent at 10.0.0.1: never (2 more since the last line)");
  EXPECT_EQ(
      refusals.add("10.0.0.1", "no", kBegin + 2 * Refusals::kPause),
      "refused an agent at 10.0.0.1: no");
}

TEST(Refusals, OfManyAddressesShareALine) {
  Refusals refusals;
  size_t lines = 0;
  for (size_t i = 0; i < 10 * Refusals::kMostAddresses; ++i) {
    lines +=
        refusals.add(fmt::format("10.0.{}.{}", i / 256, i % 256), "no", kBegin).empty() ? 0 : 1;
  }
  EXPECT_LE(lines, Refusals::kMostAddresses + 1);
}

}  // namespace refusals_test
}  // namespace lockstep::launch
