// Graph of waits between the ranks of a machine. It is built without the ranks' cooperation from
// the rank status (base/rank_status.h) and the kernel's process state, and used to find the rank
// that hangs.
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
  char state = 0;     // state letter of the kernel (launch/workers/stacks.h)
  int64_t step = 0;   // last step that started; 0: none
  double median = 0;  // median seconds of its recent steps; 0: none has ended

  int rank() const { return rank_status.rank; }
  bool stands() const { return state == 'T' || state == 't' || state == 'D'; }
};

/// Reads the status of a rank. Returns nullopt if it has none yet.
std::optional<RankView> view_rank(const std::filesystem::path& file);

/// Edge of the graph: the rank `from` waits for the rank `to`. `has_come` is true if `to` has
/// started the same call, otherwise it has not arrived there. Of ranks of other machines, only the
/// number is known.
struct Awaiting {
  int from = 0, to = 0;
  bool has_come = false;
  PendingCall wait;
};

/// Returns the graph. Each wait has an edge to every rank that has not arrived. If all known ranks
/// have arrived, it has edges to those whose process does not run.
std::vector<Awaiting> who_waits(const std::vector<RankView>& ranks);

/// Hanging rank, or several ranks that wait for each other.
struct Hang {
  std::vector<int> ranks;  // the hanging rank, or all ranks of a cycle
  bool is_circle = false;
  double seconds = 0;  // seconds since the last progress
  double limit = 0;    // seconds after which it is reported
};

/// Finds the rank to report. Only ranks without progress for a certain time are considered: three
/// median steps or RankStatusReading::report_after, whichever is longer, but at most `shortest`.
/// Among them, selects a process that does not run; otherwise the rank that waits for no rank and
/// has been without progress for longest; otherwise a cycle of ranks of one machine. Before the
/// first step has ended, only processes that do not run are reported. `now` is in seconds of the
/// machine's monotonic clock.
std::optional<Hang> find_hang(
    const std::vector<RankView>& ranks, double now, std::optional<double> shortest = {});

/// Returns a description such as "rank 2 (pipeline 0, data 1, ...): step 7, backward since 3.1 s,
/// stopped", followed by the calls that the rank waits in.
std::string describe_rank(const RankView& rank, double now);
/// Returns one line per wait, such as "ranks 0, 1 wait for rank 2: all_reduce number 12 of group
/// world, shape [6], for 3.1 s". Empty if no rank waits.
std::string describe_waiting(const std::vector<RankView>& ranks, double now);
/// Describes a hanging rank or cycle, and the graph of waits.
std::string describe_hang(const Hang& hang, const std::vector<RankView>& ranks, double now);

}  // namespace lockstep::launch
