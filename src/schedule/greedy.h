// Zero-bubble schedules made for given times, where those by hand assume that F, I and W take as
// long.
#pragma once

#include "schedule/timeline.h"

namespace lockstep::schedule {

/// A schedule of one stage a rank, in the spirit of the heuristic of Qi et al. (2023, section 3.1):
/// the gradient of the input as soon as it can be, else a forward while fewer than `held_limit`
/// micro-batches are held (from F to W), else a gradient of the weights where the gap is long
/// enough for it. Several lengths of such gaps are tried and the schedule with the shortest span is
/// returned, as Kind::kFile: `lockstep schedule` and `parallel.schedule` take it as a file.
/// `durations` has one entry a rank. Deterministic. Throws (config) for sizes below 1.
Schedule make_greedy(int micro_batches, const Durations& durations, int held_limit);

}  // namespace lockstep::schedule
