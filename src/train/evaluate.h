// Loss and metrics of a model on sequences.
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
  objective::Report report;  // the objective's
  int64_t targets = 0;       // what its loss is divided by
  int64_t samples = 0;
  int64_t batches = 0;
  double seconds = 0;

  /// "loss", or the value of a metric by its name; NaN where it has none.
  double metric(std::string_view name) const;
};

/// Throws Error (numeric) if the loss of an evaluation is NaN or Inf.
void check_finite(double loss);

/// A model's objective's sums over batches, as parallel::ParallelModel::statistics. Where ranks
/// share batches, all of them are asked, and the sum over axes.data_context() is the batches'.
using Statistics = std::function<at::Tensor(std::span<const nn::ForwardInputs>)>;

/// What an objective reads of a batch beside its rows, on the CPU (AnswerReference). Every rank is
/// asked, as often.
using Preparation = std::function<void(nn::ForwardInputs& inputs, const data::MicroBatch& batch)>;

/// Every sequence once, in order, in batches that the data-parallel ranks take in turn: the batches
/// are the same on any number of ranks, and so is the result. Every rank must call. Throws Error
/// (data) if no row has a target: a loss over nothing is 0.
/// `progress(done, all)` is told of this rank's batches.
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
