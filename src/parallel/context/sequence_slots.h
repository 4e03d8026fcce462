// What in a model sees that its activations are parts of sequences, besides attention over them.
#pragma once

#include "nn/language_model.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Swaps the dropouts of a model whose activations are parts of sequences, for ones that draw the
/// masks of the whole, and attention over sequences that were padded for one that leaves the
/// padding out. To be called after apply_tensor_parallel. A whole part changes nothing.
void apply_sequence_part(nn::LanguageModel& model, const SequencePart& part);

}  // namespace lockstep::parallel
