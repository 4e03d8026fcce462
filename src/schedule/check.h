// Proves a schedule complete, free of deadlock, and within its claim about memory.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace lockstep::schedule {

struct Report {
  /// Everything that is wrong; empty where the schedule is proved right. At most 20 are listed.
  std::vector<std::string> problems;
  /// The most (stage, micro-batch) pairs whose activations a rank really holds, [ranks].
  std::vector<int> held;
  /// Between any two ranks messages arrive in the order in which they are taken: no tags are
  /// needed. Where this is false, the executor must match messages by (stage, micro-batch).
  bool messages_in_order = true;
};

/// - Complete: every stage does each micro-batch's forward once, and its backward once: B, or I and
/// then W.
/// - No deadlock: the order on each rank and the messages between stages leave no cycle (a message
/// is sent without
///   waiting for the receiver). A cycle is told action by action.
/// - Memory: no rank holds more than `held_limit`.
Report check(const Schedule& schedule);

/// Throws (config) with all problems and `source` where there are any.
void require_valid(const Schedule& schedule, const std::string& source);

}  // namespace lockstep::schedule
