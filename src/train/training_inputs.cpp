// Prepares the micro-batches of a training step.
#include "train/training_inputs.h"

#include <algorithm>
#include <cmath>

#include "train/batches/inputs.h"

namespace lockstep::train {

double embedding_noise(double alpha, const data::MicroBatch& batch, int64_t width) {
  const int64_t longest = std::max<int64_t>(std::ranges::max(batch.row_tokens), 1);
  return alpha / std::sqrt(static_cast<double>(longest * width));
}

std::vector<nn::ForwardInputs> training_inputs(
    const Job& job, std::span<const data::MicroBatch> micro_batches) {
  const config::TrainingSection& training = job.config.training;
  std::vector<nn::ForwardInputs> inputs;
  for (const data::MicroBatch& micro_batch : micro_batches) {
    nn::ForwardInputs& rows = inputs.emplace_back(to_inputs(micro_batch));
    if (job.mark_targets) {
      job.mark_targets(rows, micro_batch);
    }
    rows.seed = static_cast<uint64_t>(training.seed);
    rows.step = job.progress.step;
    rows.training = job.drops_out;
    rows.embedding_noise = embedding_noise(
        training.neftune_noise_alpha.value_or(0), micro_batch, job.source.config.hidden_size);
  }
  return inputs;
}

}  // namespace lockstep::train
