// Processing of a rank's summed gradients before the optimizer step.
#pragma once

#include <span>

#include "parallel/pipeline/options.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// Adds the gradients of the two copies of a tied weight (and of adapters on it) if two pipeline
/// stages hold one each. Every rank must call.
void sum_tied_copies(
    std::span<const ShardedModel> stages, const Schedules& schedules, comm::Communicator& pipeline);

/// Returns the sum of squares of all summed gradients, counting each element once: float64 [1] on
/// `device`, equal on every rank. Every rank must call.
Tensor squared_gradients(
    std::span<const ShardedModel> stages, ParallelGroups& axes, c10::Device device);

/// Throws Error (numeric) naming the first parameter with a NaN or Inf gradient on any rank. Every
/// rank of `world` must call.
[[noreturn]] void throw_not_finite(
    std::span<const ShardedModel> stages, comm::Communicator& world, double loss, double norm);

}  // namespace lockstep::parallel
