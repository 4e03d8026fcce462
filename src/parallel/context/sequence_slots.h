// Sequence sharding of layers other than attention that depend on positions.
#pragma once

#include "nn/language_model.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Replaces layers of a model whose activations are sharded by sequence: dropout draws the mask of
/// the whole sequence, and attention ignores the padding of padded sequences. Call after
/// apply_tensor_parallel. Does nothing if the sequence is not sharded.
void apply_sequence_part(nn::LanguageModel& model, const SequencePart& part);

}  // namespace lockstep::parallel
