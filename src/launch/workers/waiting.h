// Graph of waits between the ranks of a machine and the rank that hangs, from the rank status
// (base/rank_status.h) and the kernel's process state, without the ranks' cooperation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/rank_status.h"

namespace lockstep::launch {

/// Current state of a rank of this machine.
struct RankView {
  RankStatusReading rank_status;
  pid_t process = 0;
  char state = 0;     // the kernel's letter (launch/workers/stacks.h)
  int64_t step = 0;   // last step that started; 0: none
  double median = 0;  // median seconds of its recent steps; 0: none has ended

  int rank() const { return rank_status.rank; }
  bool stands() const { return state == 'T' || state == 't' || state == 'D'; }
};

/// Reads a rank's status; nullopt if it has none yet.
std::optional<RankView> view_rank(const std::filesystem::path& file);

/// Edge of the graph: `from` waits for `to`, which has not arrived at the call (if `has_come`, it
/// has arrived and is inside the call). Only the number is known of ranks of other machines.
struct Awaiting {
  int from = 0, to = 0;
  bool has_come = false;
  PendingCall wait;
};

/// The graph: for each wait, an edge to every rank that has not arrived or, if all known ranks
/// have, to those that do not run.
std::vector<Awaiting> who_waits(const std::vector<RankView>& ranks);

/// A hanging rank, or several that wait for each other.
struct Hang {
  std::vector<int> ranks;  // the hanging rank, or all ranks of a cycle
  bool is_circle = false;
  double seconds = 0;  // seconds since the last progress
  double limit = 0;    // seconds after which it is reported
};

/// Finds the rank to report among those without progress for the larger of three median steps and
/// RankStatusReading::report_after: a process that does not run; otherwise the one that waits for
/// no rank and has not progressed for longest; otherwise a cycle of ranks of one machine. Before
/// the first step has ended only processes that do not run are reported. `now`: seconds of the
/// machine's steady clock. `shortest`: an upper bound of the limit.
std::optional<Hang> find_hang(
    const std::vector<RankView>& ranks, double now, std::optional<double> shortest = {});

/// "rank 2 (pipeline 0, data 1, ...): step 7, backward since 3.1 s, stopped", and its waits.
std::string describe_rank(const RankView& rank, double now);
/// One line per wait: "ranks 0, 1 wait for rank 2: all_reduce number 12 of group world, shape [6],
/// for 3.1 s". Empty if no rank waits.
std::string describe_waiting(const std::vector<RankView>& ranks, double now);
/// Describes a hang of one rank or of a cycle, including the graph.
std::string describe_hang(const Hang& hang, const std::vector<RankView>& ranks, double now);

}  // namespace lockstep::launch
