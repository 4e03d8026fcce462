#include "schedule/greedy.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/check.h"

namespace lockstep::schedule {
namespace {

Durations even(int ranks, StageTimes times, double message) {
  return {std::vector<StageTimes>(ranks, times), std::vector<double>(ranks, message), {}};
}

TEST(Greedy, IsCompleteAndHoldsNoMoreThanItMay) {
  for (const int ranks : {1, 3, 4}) {
    for (const int micro_batches : {1, 2, 7, 16}) {
      const Durations durations = even(ranks, {2, 3, 1}, 0.1);
      const Schedule schedule = make_greedy(micro_batches, durations, ranks + 1);
      EXPECT_NO_THROW(require_valid(schedule, "greedy")) << ranks << " " << micro_batches;
      for (const auto& actions : schedule.actions) {
        EXPECT_EQ(actions.size(), 3U * micro_batches);
        int held = 0;
        for (const Action& action : actions) {
          held += action.kind == ActionKind::kForward ? 1 : 0;
          held -= action.kind == ActionKind::kBackwardWeight ? 1 : 0;
          EXPECT_LE(held, ranks + 1);
        }
      }
    }
  }
}

TEST(Greedy, IsNoSlowerThanTheOneByHandWhereTimesDiffer) {
  const Durations durations = even(8, {18.522, 18.086, 9.337}, 0.601);
  for (const int micro_batches : {24, 64}) {
    const auto bubble = [&](const Schedule& schedule) {
      return time_schedule(schedule, durations).span_bubble();
    };
    const double by_hand =
        bubble(make_schedule({.kind = Kind::kZbH2, .ranks = 8, .micro_batches = micro_batches}));
    EXPECT_LT(bubble(make_greedy(micro_batches, durations, 16)), by_hand);
  }
}

TEST(Greedy, RefusesSizesBelowOne) {
  EXPECT_THROW(make_greedy(0, even(2, {1, 1, 1}, 0), 2), Error);
  EXPECT_THROW(make_greedy(4, even(2, {1, 1, 1}, 0), 0), Error);
  EXPECT_THROW(make_greedy(4, {}, 2), Error);
}

}  // namespace
}  // namespace lockstep::schedule
