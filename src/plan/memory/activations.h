// Activations stored for the backward pass, per block, and the number of micro-batches in flight.
#pragma once

#include <vector>

#include "plan/workload/job.h"

namespace lockstep::plan {

/// Bytes of activations that a block of this kind keeps for a micro-batch on one rank, by recompute
/// setting (Korthikanti et al., 2022, equations 1 to 6, for gated MLPs, grouped-query, fused and
/// cross attention, and attention with a bias of its scores as well).
double block_activations(const Job& job, BlockKind kind, Recompute recompute);

/// Micro-batches whose activations each pipeline rank holds at most, in whole ranks' worth of
/// blocks, [pipeline].
std::vector<double> micro_batches_in_flight(const Job& job);

}  // namespace lockstep::plan
