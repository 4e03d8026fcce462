// Times a schedule: when each action starts and ends, given how long actions and messages take.
#pragma once

#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace lockstep::schedule {

/// Times of one stage, in any unit.
struct StageTimes {
  double forward = 1;
  double input = 1;   // I; B takes input + weight
  double weight = 1;  // W
};

struct Durations {
  std::vector<StageTimes> stages;  // [stages]
  /// From the end of an action to the moment at which its message is there, between different
  /// ranks, [stages]: message[s] is the way from stage s to s + 1 and back.
  std::vector<double> message;
  /// How long the sender's compute is blocked by its message, if it is, [stages]; empty: not at
  /// all.
  std::vector<double> send_blocks;
};

/// Every stage of a rank with v stages takes 1/v of (forward, input, weight); messages take
/// `message`.
Durations even_durations(const Schedule& schedule, StageTimes of_a_rank, double message = 0);

struct Span {
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> spans;  // [ranks][actions], as in the schedule
  double end = 0;                        // of the last action of all
  std::vector<double> busy;              // [ranks]
  std::vector<double> first, last;       // [ranks]: start of the first action, end of the last

  /// From the first action of a rank to its last, of the rank that takes longest.
  double longest_span() const;
  /// Idle share of all ranks from the start to the end: 1 - sum(busy) / (ranks * end).
  double bubble() const;
  /// The same with the end of a rank not waiting for the others': 1 - busiest work / the longest
  /// (last - first) of a rank. This is the bubble rate of Qi et al. (2023), whose optimizer steps
  /// are not synchronised.
  double span_bubble() const;
};

/// Runs the lists: an action starts when the rank's last one has ended and what it needs is there.
/// Linear in the number of actions. Throws (config) where the schedule has a deadlock.
Timeline time_schedule(const Schedule& schedule, const Durations& durations);

/// What an action waits for from another rank: the forward of the stage before, or the backward (B
/// or I) of the stage after; nothing where that is on the same rank, or there is none. The kind is
/// kForward or kBackward.
std::optional<Action> message_of(const Schedule& schedule, const Action& action);

struct Wait {
  int rank = 0;
  Action at;
  Action needs;
};

/// The waits of a deadlock as a cycle of ranks (a rank that waits for itself is a cycle of one), if
/// there is one. The schedule must be complete.
std::optional<std::vector<Wait>> find_deadlock(const Schedule& schedule);

}  // namespace lockstep::schedule
