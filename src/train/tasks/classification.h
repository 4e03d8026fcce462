// What a classifier answers to rows, under any plan.
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

/// A classifier's logits of the rows of batches, as parallel::ParallelModel::class_scores.
using ClassScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

struct Classified {
  at::Tensor logits;  // float32 [rows, outputs], on the CPU, the same on every rank
  int64_t batches = 0;
  double seconds = 0;
};

/// Every row once, in batches of like length that the data-parallel ranks take in turn: the batches
/// are the same on any number of ranks. Every rank must call. `progress(done, all)` is told of this
/// rank's batches.
Classified classify(
    const ClassScorer& scorer,
    const data::SequenceView& rows,
    int64_t classes,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace lockstep::train
