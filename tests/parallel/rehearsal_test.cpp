// Tests of pipeline rehearsals: measured and simulated timelines.
#include "parallel/pipeline/rehearsal.h"

#include <map>
#include <tuple>

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace rehearsal_test {

using schedule::ActionKind;
using schedule::Kind;

TEST(Rehearsal, RunsEveryActionAfterWhatItNeeds) {
  for (const Kind kind : {Kind::kOneFOneB, Kind::kZbH1, Kind::kZbV}) {
    const schedule::Schedule schedule =
        schedule::make_schedule({.kind = kind, .ranks = 3, .micro_batches = 4});
    const schedule::StageTimes times{.forward = 2e-3, .input = 1e-3, .weight = 1e-3};
    const schedule::Timeline timeline =
        rehearse(schedule, schedule::even_durations(schedule, times));
    // Spans by direction, stage and micro-batch.
    std::map<std::tuple<bool, int, int>, schedule::Span> spans;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const auto& actions = schedule.actions[static_cast<size_t>(rank)];
      const auto& own = timeline.spans[static_cast<size_t>(rank)];
      ASSERT_EQ(own.size(), actions.size());
      for (size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].kind != ActionKind::kBackwardWeight) {
          spans[{
              actions[i].kind == ActionKind::kForward, actions[i].stage, actions[i].micro_batch}] =
              own[i];
        }
      }
      // A sleep is never shorter than requested.
      EXPECT_GE(timeline.busy[static_cast<size_t>(rank)], 4 * 4e-3);
    }
    for (const auto& [key, span] : spans) {
      const auto& [is_forward, stage, micro_batch] = key;
      const auto before = spans.find({is_forward, stage + (is_forward ? -1 : 1), micro_batch});
      if (before != spans.end()) {
        // The end is reported after the message was sent.
        EXPECT_GT(span.end, before->second.start);
      }
    }
    EXPECT_GT(timeline.bubble(), 0);
    EXPECT_LT(timeline.bubble(), 1);
  }
}

/// The executor's order of every schedule gives the published bubbles in simulated time.
TEST(Rehearsal, TheExecutorsBubblesAreThoseOfTheFormulas) {
  constexpr schedule::StageTimes kTimes{.forward = 1, .input = 1, .weight = 1};
  const auto bubble_of = [&](const schedule::Request& request) {
    const schedule::Schedule schedule = schedule::make_schedule(request);
    const schedule::Timeline timeline =
        rehearse(schedule, schedule::even_durations(schedule, kTimes), RehearsalClock::kVirtual);
    const bool unsynchronised = request.kind == Kind::kZbH2 || request.kind == Kind::kZbV;
    return unsynchronised ? timeline.span_bubble() : timeline.bubble();
  };
  for (const int ranks : {2, 4}) {
    std::map<Kind, double> bubbles;
    for (const Kind kind :
         {Kind::kNaive,
          Kind::kGpipe,
          Kind::kOneFOneB,
          Kind::kInterleaved,
          Kind::kZbH1,
          Kind::kZbH2,
          Kind::kZbV}) {
      const schedule::Request request{kind, ranks, 2 * ranks, kind == Kind::kInterleaved ? 2 : 0};
      const double formula = schedule::formula_bubble(request, 1, 1, 1);
      bubbles[kind] = bubble_of(request);
      EXPECT_NEAR(bubbles[kind], formula, 0.1 * formula + 1e-9) << kind_name(kind);
    }
    // Idle time relative to work: halved by two virtual stages, a third with ZB-H1.
    const auto idle = [&](Kind kind) { return bubbles.at(kind) / (1 - bubbles.at(kind)); };
    EXPECT_NEAR(idle(Kind::kInterleaved), idle(Kind::kOneFOneB) / 2, 1e-9);
    EXPECT_NEAR(idle(Kind::kZbH1), idle(Kind::kOneFOneB) / 3, 1e-9);
    EXPECT_NEAR(idle(Kind::kZbH2), 0, 1e-9);
    EXPECT_NEAR(idle(Kind::kZbV), 0, 1e-9);
  }
}

}  // namespace rehearsal_test
}  // namespace lockstep::parallel
