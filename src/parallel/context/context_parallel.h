// Context parallelism. Each rank holds a shard of every sequence, and only attention reads other
// ranks' shards.
#pragma once

#include "nn/language_model.h"
#include "parallel/context/context_attention.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Replaces the attention of `model` (or of a pipeline stage) with attention over the context axis.
/// Must be called after apply_tensor_parallel, whose heads it uses. Does nothing in a group of one
/// rank. `axes` must outlive the model. Throws Error (kConfig), with a suggestion, if kUlysses
/// cannot divide this rank's heads.
void apply_context_parallel(
    nn::LanguageModel& model,
    ParallelGroups& axes,
    const SequencePart& part,
    ContextAttention attention);

}  // namespace lockstep::parallel
