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

  /// Returns the loss if `name` is "loss", otherwise the metric of this name, or NaN if it does not
  /// exist.
  double metric(std::string_view name) const;
};

/// Throws Error (numeric) if the loss of an evaluation is NaN or Inf.
void check_finite(double loss);

/// Computes the objective's sums over batches, like parallel::ParallelModel::statistics. Must be
/// called on all ranks that share these batches. The sum over axes.data_context() is the total of
/// all batches.
using Statistics = std::function<at::Tensor(std::span<const nn::ForwardInputs>)>;

/// Adds inputs that an objective needs in addition to the rows, on the CPU (AnswerReference).
/// Called equally often on every rank.
using Preparation = std::function<void(nn::ForwardInputs& inputs, const data::MicroBatch& batch)>;

/// Evaluates every sequence once, in order. Batches are distributed over the data-parallel ranks.
/// The batches and the result do not depend on the number of ranks. Calls `progress(done, all)`
/// with numbers of this rank's batches. Throws Error (data) if no row has a target. Must be called
/// on every rank.
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
