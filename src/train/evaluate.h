// Loss, perplexity and token accuracy of a model on sequences.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/sequences.h"
#include "nn/forward_context.h"
#include "parallel/axes.h"

namespace lockstep::train {

struct Evaluation {
  double loss_sum = 0;  // nats
  int64_t targets = 0;  // tokens that were predicted
  int64_t correct = 0;  // of those, where the likeliest was right
  int64_t samples = 0;
  int64_t batches = 0;
  double seconds = 0;

  double loss() const { return targets == 0 ? 0 : loss_sum / static_cast<double>(targets); }
  double perplexity() const;
  double accuracy() const {
    return targets == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(targets);
  }
};

/// What a model says of batches: see nn::LanguageModel::statistics. Where ranks share batches, all
/// of them are asked, and the sum over axes.gradients() is the batches'.
using Statistics = std::function<at::Tensor(std::span<const nn::ForwardInputs>)>;

/// Every sequence once, in order, in batches that the data-parallel ranks take in turn: the batches
/// are the same on any number of ranks, and so is the result. Every rank must call.
/// `progress(done, all)` is told of this rank's batches.
Evaluation evaluate(
    const Statistics& statistics,
    const data::SequenceView& sequences,
    int64_t batch_size,
    parallel::Axes& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace lockstep::train
