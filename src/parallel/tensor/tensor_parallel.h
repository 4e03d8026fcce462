// Tensor parallelism: replaces the layers of a model with sharded layers (Shoeybi et al.,
// "Megatron-LM", 2019, section 3).
#pragma once

#include "nn/language_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sharded_parameter.h"
#include "parallel/tensor/region.h"

namespace lockstep::parallel {

/// Replaces the layers in the slots of `model` (or of a pipeline stage) with this rank's shards on
/// the tensor axis. Query heads with their keys and values, the inner width of the MLP, and the
/// vocabulary are split as evenly as possible. Parameters are replaced with uninitialized ones of
/// the shard's shape, with the same type and device, so build the model on the Meta device. Does
/// nothing in a group of one rank. Must be called on every rank of the group. `axes` must outlive
/// the model. Throws Error (kConfig) that lists all problems if there are fewer heads, columns or
/// tokens than ranks.
ShardedParameters apply_tensor_parallel(
    nn::LanguageModel& model, ParallelGroups& axes, SequenceSharding sequence);

}  // namespace lockstep::parallel
