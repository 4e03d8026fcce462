// Zero-bubble schedules for measured times. (The handcrafted schedules assume that F, I and W take
// the same time.)
#pragma once

#include "schedule/timeline.h"

namespace lockstep::schedule {

struct GreedyLimits {
  double held = 1;          // maximum number of micro-batches whose activations a rank holds
  double weight_share = 1;  // fraction of the activation memory that stays allocated between I and
                            // W (Qi et al., 2023: M_W / M_B)
};

/// Builds a schedule with one stage per rank, based on the heuristic of Qi et al. (2023, section
/// 3.1). Each rank runs an input gradient as soon as it can. Otherwise it runs a forward, if the
/// memory limit permits it and the forward does not delay an expected gradient for too long.
/// Otherwise it runs a weight gradient, if the gap is long enough. Several thresholds for delay and
/// gap are tried, and the schedule with the shortest span is returned.
///
/// The result has Kind::kFile; `lockstep schedule` and `parallel.schedule` can read it from a file.
/// `durations` has one entry per rank. The result is deterministic. Throws Error (config) if a size
/// is below 1.
Schedule make_greedy(int micro_batches, const Durations& durations, const GreedyLimits& limits);

}  // namespace lockstep::schedule
