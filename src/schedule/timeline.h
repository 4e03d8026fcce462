// Timeline of a schedule: start and end times of all actions, for given durations of actions and
// messages.
#pragma once

#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace lockstep::schedule {

/// Durations of one stage, in any unit.
struct StageTimes {
  double forward = 1;
  double input = 1;   // I; B takes the time of input + weight
  double weight = 1;  // W
};

struct Durations {
  std::vector<StageTimes> stages;  // [stages]
  /// Time from the end of an action until its message arrives on another rank, [stages]. message[s]
  /// applies between stages s and s + 1 in both directions.
  std::vector<double> message;
  /// Time for which a message blocks the computation of its sender, [stages]; empty: 0.
  std::vector<double> send_blocks;
};

/// Divides the times of a rank evenly among its v stages: forward, input and weight of each stage
/// take 1/v of the given times. Each message takes `message`.
Durations even_durations(const Schedule& schedule, StageTimes of_a_rank, double message = 0);

struct Span {
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> spans;  // [ranks][actions], as in the schedule
  double end = 0;                        // end of the last action
  std::vector<double> busy;              // [ranks]
  std::vector<double> first, last;  // [ranks]: start of the first action, end of the last action

  /// Returns the maximum over the ranks of the time from a rank's first to its last action.
  double longest_span() const;
  /// Returns the idle fraction of all ranks over the whole timeline: 1 - sum(busy) / (ranks * end).
  double bubble() const;
  /// Returns the idle fraction if a rank can finish without waiting for other ranks: 1 - largest
  /// busy time / longest span of a rank. This is the bubble rate of Qi et al. (2023), where
  /// optimizer steps are not synchronized.
  double span_bubble() const;
};

/// Simulates the schedule. An action starts when the previous action of the rank has ended and its
/// input has arrived. Takes time linear in the number of actions. Throws Error (config) if the
/// schedule deadlocks.
Timeline time_schedule(const Schedule& schedule, const Durations& durations);

/// Returns the action on another rank that this action waits for: the forward of the previous
/// stage, or the backward (B or I) of the next stage. Returns nullopt if there is none or if it
/// runs on the same rank. The returned kind is kForward or kBackward.
std::optional<Action> message_of(const Schedule& schedule, const Action& action);

struct Wait {
  int rank = 0;
  Action at;
  Action needs;
};

/// Returns the waits of a deadlock as a cycle of ranks; nullopt if there is no deadlock. A rank
/// that waits for itself is a cycle of one. The schedule must be complete.
std::optional<std::vector<Wait>> find_deadlock(const Schedule& schedule);

}  // namespace lockstep::schedule
