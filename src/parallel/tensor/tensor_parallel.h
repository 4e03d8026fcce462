// Tensor parallelism: what stands in a plain model's slots is swapped for layers that hold a part
// (Shoeybi et al., "Megatron-LM", 2019, section 3).
#pragma once

#include "nn/language_model.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sharded_parameter.h"
#include "parallel/tensor/region.h"

namespace lockstep::parallel {

/// Swaps the slots of `model`, or of a pipeline's part of one, for those of this rank of the
/// tensor axis: query heads with their keys and values, the MLP's inner width, and the vocabulary
/// are split, as evenly as they go. The parameters are replaced by uninitialised ones of the part's
/// shape, of the same type and device; the model is best made on the Meta device. A group of one
/// changes nothing. Every rank of the group must call. `axes` must outlive the model. Throws Error
/// (kConfig), all problems at once, where there are fewer heads, widths or tokens than ranks.
ShardedParameters apply_tensor_parallel(
    nn::LanguageModel& model, ParallelGroups& axes, SequenceSharding sequence);

}  // namespace lockstep::parallel
