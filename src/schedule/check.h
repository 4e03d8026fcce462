// Verifies that a schedule is complete, free of deadlocks and within its memory limit.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace lockstep::schedule {

struct Report {
  /// Problems found, at most 20; empty if the schedule is valid.
  std::vector<std::string> problems;
  /// Peak number of (stage, micro-batch) pairs whose activations each rank holds, [ranks].
  std::vector<int> held;
  /// True if the messages between any two ranks arrive in the order in which the receiver takes
  /// them, so that no tags are needed. If false, the executor must match messages by (stage,
  /// micro-batch).
  bool messages_in_order = true;
};

/// Checks a schedule:
///
/// - Complete: every stage runs the forward and the backward (B, or I then W) of each micro-batch
///   exactly once.
/// - No deadlock: the order on each rank and the messages between stages form no cycle. Sends do
///   not wait for the receiver. The actions of a cycle are listed.
/// - Memory: no rank holds more than `held_limit`.
Report check(const Schedule& schedule);

/// Throws Error (config) with all problems and `source` if the schedule is invalid.
void require_valid(const Schedule& schedule, const std::string& source);

}  // namespace lockstep::schedule
