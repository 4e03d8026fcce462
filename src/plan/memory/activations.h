// Activation memory per block, and number of micro-batches in flight.
#pragma once

#include <vector>

#include "plan/workload/job.h"

namespace lockstep::plan {

/// Returns the activation bytes that a block stores for one micro-batch on one rank with a
/// recompute setting. Follows Korthikanti et al., 2022, equations 1 to 6; extended to gated MLPs,
/// grouped-query, fused and cross attention, and attention with a score bias.
double block_activations(const Job& job, BlockKind kind, Recompute recompute);

/// Returns the maximum number of micro-batches in flight on each pipeline rank, in units of the
/// rank's blocks, [pipeline].
std::vector<double> micro_batches_in_flight(const Job& job);

}  // namespace lockstep::plan
