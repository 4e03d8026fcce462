// Tests of greedy zero-bubble schedules.
#include "schedule/greedy.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/check.h"

namespace lockstep::schedule {
namespace greedy_test {

Durations even(int ranks, StageTimes times, double message) {
  return {std::vector<StageTimes>(ranks, times), std::vector<double>(ranks, message), {}};
}

TEST(Greedy, IsCompleteAndHoldsNoMoreThanItMay) {
  for (const int ranks : {1, 3, 4}) {
    for (const int micro_batches : {1, 2, 7, 16}) {
      const Durations durations = even(ranks, {2, 3, 1}, 0.1);
      const Schedule schedule = make_greedy(micro_batches, durations, {.held = ranks + 1.0});
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
    EXPECT_LT(
        bubble(make_greedy(micro_batches, durations, {.held = 16, .weight_share = 0.37})), by_hand);
  }
}

TEST(Greedy, ReachesThePublishedRates) {
  // Qi et al. (2023): ZB-2p for their 6.2 B model on 8 ranks, and ZB-1p for the 1.5 B model.
  const auto bubble = [](const Durations& durations,
                         int micro_batches,
                         const GreedyLimits& limits) {
    return time_schedule(make_greedy(micro_batches, durations, limits), durations).span_bubble();
  };
  const Durations large = even(8, {29.718, 29.444, 19.927}, 0.527);
  EXPECT_NEAR(bubble(large, 24, {.held = 16, .weight_share = 0.43}), 0.0029, 0.005);
  const Durations small = even(8, {18.522, 18.086, 9.337}, 0.601);
  EXPECT_NEAR(bubble(small, 24, {.held = 8, .weight_share = 0.37}), 0.1585, 0.005);
}

TEST(Greedy, RefusesSizesBelowOne) {
  EXPECT_THROW(make_greedy(0, even(2, {1, 1, 1}, 0), {.held = 2}), Error);
  EXPECT_THROW(make_greedy(4, even(2, {1, 1, 1}, 0), {.held = 0}), Error);
  EXPECT_THROW(make_greedy(4, {}, {.held = 2}), Error);
}

}  // namespace greedy_test
}  // namespace lockstep::schedule
