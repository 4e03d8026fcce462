// Context parallelism: each rank holds a shard of every sequence, and only attention reads beyond
// it.
#pragma once

#include "nn/language_model.h"
#include "parallel/context/context_attention.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Replaces the attention of `model` (or of a pipeline stage) by one that works over the context
/// axis. Call after apply_tensor_parallel, whose heads it uses. No effect in a group of one. `axes`
/// must outlive the model. Throws Error (kConfig), with a suggestion, if this rank's heads are
/// unsuitable for kUlysses.
void apply_context_parallel(
    nn::LanguageModel& model,
    ParallelGroups& axes,
    const SequencePart& part,
    ContextAttention attention);

}  // namespace lockstep::parallel
