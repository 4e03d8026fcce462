// Zero-bubble schedules made for given times, where those by hand assume that F, I and W take as
// long.
#pragma once

#include "schedule/timeline.h"

namespace lockstep::schedule {

struct GreedyLimits {
  double held = 1;          // micro-batches whose activations a rank may hold
  double weight_share = 1;  // of them, what is kept from I to W (Qi et al., 2023: M_W over M_B)
};

/// A schedule of one stage a rank, in the spirit of the heuristic of Qi et al. (2023, section 3.1):
/// the gradient of the input as soon as it can be, else a forward where the limit allows it and it
/// would not hold up a gradient that is on its way for long, else a gradient of the weights where
/// the gap is long enough. Several lengths of both are tried, and the schedule with the shortest
/// span is returned, as Kind::kFile: `lockstep schedule` and `parallel.schedule` take it as a file.
/// `durations` has one entry a rank. Deterministic. Throws (config) for sizes below 1.
Schedule make_greedy(int micro_batches, const Durations& durations, const GreedyLimits& limits);

}  // namespace lockstep::schedule
