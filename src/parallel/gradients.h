// Processes the summed gradients of a rank before the optimizer step.
#pragma once

#include <span>

#include "parallel/pipeline/options.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// If two pipeline stages each hold a copy of a tied weight, sums the gradients of the copies and
/// of their adapters. Must be called on every rank.
void sum_tied_copies(
    std::span<const ShardedModel> stages, const Schedules& schedules, comm::Communicator& pipeline);

/// Returns the sum of squares of all summed gradients, with each element counted once: float64 [1]
/// on `device`, equal on every rank. Must be called on every rank.
Tensor squared_gradients(
    std::span<const ShardedModel> stages, ParallelGroups& axes, c10::Device device);

/// Throws Error (numeric) that names the first parameter with a NaN or Inf gradient on any rank.
/// Must be called on every rank of `world`.
[[noreturn]] void throw_not_finite(
    std::span<const ShardedModel> stages, comm::Communicator& world, double loss, double norm);

}  // namespace lockstep::parallel
