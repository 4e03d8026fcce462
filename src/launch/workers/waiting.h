// Who waits for whom among the ranks of a machine, and which of them stands still: from what each
// tells of itself (base/rank_status.h) and what the kernel says of its process. No rank is asked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/rank_status.h"

namespace lockstep::launch {

/// A rank of this machine as it is now.
struct RankView {
  RankStatusReading rank_status;
  pid_t process = 0;
  char state = 0;     // the kernel's letter (launch/workers/stacks.h)
  int64_t step = 0;   // that began last; 0: none
  double median = 0;  // seconds of its last steps; 0: none has ended

  int rank() const { return rank_status.rank; }
  bool stands() const { return state == 'T' || state == 't' || state == 'D'; }
};

/// Reads a rank's file; nothing where it tells nothing yet.
std::optional<RankView> view_rank(const std::filesystem::path& file);

/// That `from` waits for `to`, which has not come to the call (`has_come`: it has, and stands in
/// it). Ranks of other machines are waited for by their numbers alone.
struct Awaiting {
  int from = 0, to = 0;
  bool has_come = false;
  PendingCall wait;
};

/// The graph: of each rank's wait one edge to every rank that has not come to it; where all have
/// come as far as is known, to those that stand.
std::vector<Awaiting> who_waits(const std::vector<RankView>& ranks);

/// A rank that hangs, or several that wait for each other.
struct Hang {
  std::vector<int> ranks;  // one; of a circle all
  bool is_circle = false;
  double seconds = 0;  // since it last got on
  double limit = 0;    // after which it is told
};

/// Of the ranks that did not get on for longer than the larger of three median steps and what their
/// configuration says (RankStatusReading::report_after), the one to look at: a process that stands;
/// else one that waits for nobody, and has not for the longest; else ranks of one machine that wait
/// in a circle. Before the first step has ended there is no measure, and only processes that stand
/// are told. `now`: seconds of the machine's steady clock. `shortest`: the limit, where it is less.
std::optional<Hang> find_hang(
    const std::vector<RankView>& ranks, double now, std::optional<double> shortest = {});

/// "rank 2 (pipeline 0, data 1, ...): step 7, backward since 3.1 s, stopped", and for what it
/// waits.
std::string describe_rank(const RankView& rank, double now);
/// A line for each wait: "ranks 0, 1 wait for rank 2: all_reduce number 12 of group world, shape
/// [6], for 3.1 s". Empty where nobody waits.
std::string describe_waiting(const std::vector<RankView>& ranks, double now);
/// What is known of a hang, the graph included: of one rank, of a circle.
std::string describe_hang(const Hang& hang, const std::vector<RankView>& ranks, double now);

}  // namespace lockstep::launch
