// The output of the MLP's activation: as large as four times the hidden states, and quick to
// compute again.
#pragma once

#include "nn/language_model.h"
#include "parallel/recompute/recompute.h"

namespace lockstep::parallel {

/// Lets go of the activation's output after mlp_down has read it, and puts it back when the
/// backward pass comes to mlp_down. It works on the products of the blocks' linear layers, whatever
/// stands in their slots.
void drop_activation_outputs(nn::LanguageModel& model, int64_t every);

}  // namespace lockstep::parallel
