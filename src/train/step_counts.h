// What the ranks tell each other once a step.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "objective/objective.h"
#include "parallel/ranks/parallel_groups.h"
#include "train/rank_times.h"
#include "train/steering.h"

namespace lockstep::train {

/// Of all ranks, or of one.
struct StepCounts {
  objective::Counts step;   // what the loss is divided by
  int64_t tokens = 0;       // tokens that were read
  int64_t stop = 0;         // ranks that were asked to stop
  int64_t save = 0;         // ranks that were asked to save
  int64_t failed = 0;       // ranks whose save in the background failed
  int64_t peak_memory = 0;  // bytes, of the rank that uses most
  int64_t measure = 0;      // a part of the machine after this step
  int64_t shapes = 0;       // shapes_of this rank's micro-batches
  Acts acts;                // that rank 0 was asked for
  bool alike = true;        // all ranks have micro-batches of the same shapes
};

/// What a rank tells: its own counts, and the times of its step before. Float64, [numbers].
at::Tensor numbers_of(const StepCounts& own, const RankTimes& times);

/// The sum of what all told, [ranks, numbers]; `own`: what this rank did.
StepCounts sum_of_ranks(
    const at::Tensor& all, const at::Tensor& own, const parallel::ParallelGroups& axes);

/// The times in what a rank told, which must stay.
std::span<const double, RankTimes::kNumbers> times_in(const at::Tensor& told);

}  // namespace lockstep::train
