// Counts that the ranks exchange once per step.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "objective/objective.h"
#include "parallel/ranks/parallel_groups.h"
#include "train/rank_times.h"
#include "train/steering.h"

namespace lockstep::train {

/// Counts of all ranks, or of one rank.
struct StepCounts {
  /// Divisors of this rank's part of a mean over ranks: its own divisors times the number of data
  /// ranks with targets.
  objective::Counts shared;
  objective::Counts step;   // divisors of the loss
  int64_t tokens = 0;       // tokens read
  int64_t stop = 0;         // number of ranks that were asked to stop
  int64_t save = 0;         // number of ranks that were asked to save
  int64_t failed = 0;       // number of ranks whose background save failed
  int64_t peak_memory = 0;  // bytes, maximum over the ranks
  int64_t measure = 0;      // above 0: run one measurement of the machine after this step
  int64_t shapes = 0;       // shapes_of() for this rank's micro-batches
  Acts acts;                // commands received by rank 0
  bool alike = true;        // all ranks have micro-batches of the same shapes
};

/// Encodes a rank's own counts and the times of its previous step. Float64, [numbers].
at::Tensor numbers_of(const StepCounts& own, const RankTimes& times);

/// Reduces the rows of all ranks, [ranks, numbers]. `own` is this rank's row.
StepCounts sum_of_ranks(
    const at::Tensor& all, const at::Tensor& own, const parallel::ParallelGroups& axes);

/// Returns the times in a rank's row. The row must outlive the returned view.
std::span<const double, RankTimes::kNumbers> times_in(const at::Tensor& told);

}  // namespace lockstep::train
