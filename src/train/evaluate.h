// Evaluation: loss and metrics of a model on a dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "data/loader.h"
#include "data/sequences.h"
#include "nn/forward_context.h"
#include "objective/objective.h"
#include "parallel/ranks/parallel_groups.h"

namespace lockstep::train {

struct Evaluation {
  objective::Report report;  // loss and metrics of the objective
  int64_t targets = 0;       // divisor of the loss
  int64_t samples = 0;
  int64_t batches = 0;
  double seconds = 0;

  /// Returns the loss for "loss", or the named metric; NaN if it does not exist.
  double metric(std::string_view name) const;
};

/// Throws Error (numeric) if the loss of an evaluation is NaN or Inf.
void check_finite(double loss);

/// Computes the objective's sums over batches, like parallel::ParallelModel::statistics. Ranks that
/// share batches must all call it; the sum over axes.data_context() is the total of the batches.
using Statistics = std::function<at::Tensor(std::span<const nn::ForwardInputs>)>;

/// Adds inputs that an objective needs besides the rows, on the CPU (AnswerReference). Every rank
/// calls it equally often.
using Preparation = std::function<void(nn::ForwardInputs& inputs, const data::MicroBatch& batch)>;

/// Evaluates every sequence once, in order. Batches are assigned to the data-parallel ranks in
/// turn; batches and result do not depend on the number of ranks. Calls `progress(done, all)` with
/// this rank's batches. Throws Error (data) if no row has a target. Every rank must call.
Evaluation evaluate(
    const Statistics& statistics,
    const objective::Objective& objective,
    const data::SequenceView& sequences,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr,
    const Preparation& prepare = nullptr);

}  // namespace lockstep::train
