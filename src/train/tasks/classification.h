// Predictions of a classifier under any parallel plan.
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

/// Computes a classifier's logits for the rows of batches, like
/// parallel::ParallelModel::class_scores.
using ClassScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

struct Classified {
  at::Tensor logits;  // float32 [rows, outputs] on the CPU, identical on every rank
  int64_t batches = 0;
  double seconds = 0;
};

/// Classifies every row once, in batches of similar length that are assigned to the data-parallel
/// ranks in turn. The batches do not depend on the number of ranks. Calls `progress(done, all)`
/// with this rank's batches. Every rank must call.
Classified classify(
    const ClassScorer& scorer,
    const data::SequenceView& rows,
    int64_t classes,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace lockstep::train
