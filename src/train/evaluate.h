// Loss, perplexity and token accuracy of a model on sequences.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/communicator.h"
#include "data/sequences.h"
#include "nn/language_model.h"

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

/// Every sequence once, in order, in batches that the ranks take in turn: the batches are the same
/// on any number of ranks, and so is the result. Every rank must call. `progress(done, all)` is
/// told of this rank's batches.
Evaluation evaluate(
    const nn::LanguageModel& model,
    const data::SequenceView& sequences,
    int64_t batch_size,
    comm::Communicator& communicator,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace lockstep::train
