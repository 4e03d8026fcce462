// Tensor parallelism: replaces the layers in a plain model's slots by sharded ones (Shoeybi et al.,
// "Megatron-LM", 2019, section 3).
#pragma once

#include "nn/language_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sharded_parameter.h"
#include "parallel/tensor/region.h"

namespace lockstep::parallel {

/// Replaces the slots of `model` (or of a pipeline stage) by those of this rank on the tensor axis:
/// query heads with their keys and values, the MLP's inner width, and the vocabulary are split as
/// evenly as possible. Parameters are replaced by uninitialized ones of the shard's shape, type and
/// device, so build the model on the Meta device. No effect in a group of one. Every rank of the
/// group must call. `axes` must outlive the model. Throws Error (kConfig) with all problems if
/// there are fewer heads, columns or tokens than ranks.
ShardedParameters apply_tensor_parallel(
    nn::LanguageModel& model, ParallelGroups& axes, SequenceSharding sequence);

}  // namespace lockstep::parallel
