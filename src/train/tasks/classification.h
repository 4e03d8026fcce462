// Predictions of a classifier, for any parallel plan.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/sequences.h"
#include "nn/forward_context.h"
#include "parallel/ranks/parallel_groups.h"

namespace lockstep::train {

/// Computes the logits of a classifier for batches of rows, like
/// parallel::ParallelModel::class_scores.
using ClassScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

struct Classified {
  at::Tensor logits;  // float32 [rows, outputs] on the CPU, identical on every rank
  int64_t batches = 0;
  double seconds = 0;
};

/// Classifies every row once. The rows of a batch have similar lengths, and batches are distributed
/// over the data-parallel ranks. The batches do not depend on the number of ranks. Calls
/// `progress(done, all)` with numbers of this rank's batches. Must be called on every rank.
Classified classify(
    const ClassScorer& scorer,
    const data::SequenceView& rows,
    int64_t classes,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace lockstep::train
