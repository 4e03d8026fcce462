// Context parallelism: each rank holds a part of every sequence, and attention alone looks beyond
// it.
#pragma once

#include "nn/language_model.h"
#include "parallel/context/context_attention.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Swaps the attention of `model`, or of a pipeline's part of one, for one that works over the
/// context axis; to be called after apply_tensor_parallel, whose heads it takes. A group of one
/// changes nothing. `axes` must outlive the model. Throws Error (kConfig), with what would work,
/// where the heads of this rank do not fit kUlysses.
void apply_context_parallel(
    nn::LanguageModel& model,
    ParallelGroups& axes,
    const SequencePart& part,
    ContextAttention attention);

}  // namespace lockstep::parallel
