// What is done with the summed gradients of a rank's stages, before the optimizer has them.
#pragma once

#include <span>

#include "parallel/pipeline/options.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// Adds up the gradients of the tied weight's two copies, and of what is trained beside it, where a
/// pipeline's stages hold one each. Every rank must call.
void sum_tied_copies(
    std::span<const ShardedModel> stages, const Schedules& schedules, comm::Communicator& pipeline);

/// The squares of all summed gradients, each element once: float64 [1] on `device`, equal on every
/// rank. Every rank must call.
Tensor squared_gradients(
    std::span<const ShardedModel> stages, ParallelGroups& axes, c10::Device device);

/// Throws Error (numeric) that names the first parameter whose gradient is not finite, on whichever
/// rank. Every rank of `world` must call.
[[noreturn]] void throw_not_finite(
    std::span<const ShardedModel> stages, comm::Communicator& world, double loss, double norm);

}  // namespace lockstep::parallel
