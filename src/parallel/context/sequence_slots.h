// Layers other than attention that depend on position, under sequence sharding.
#pragma once

#include "nn/language_model.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Replaces the dropouts of a model with sequence-sharded activations by ones that draw the mask of
/// the whole sequence, and attention over padded sequences by one that ignores the padding. Call
/// after apply_tensor_parallel. No effect if the sequence is not sharded.
void apply_sequence_part(nn::LanguageModel& model, const SequencePart& part);

}  // namespace lockstep::parallel
