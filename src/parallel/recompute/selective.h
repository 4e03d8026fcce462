// Selective recomputation of the MLP activation's output, which is four times as large as the
// hidden states and cheap to compute.
#pragma once

#include "nn/language_model.h"
#include "parallel/recompute/recompute.h"

namespace lockstep::parallel {

/// Frees the activation's output after mlp_down has read it and recomputes it when the backward
/// pass reaches mlp_down. Works with any type of linear layer.
void drop_activation_outputs(nn::LanguageModel& model, int64_t every);

}  // namespace lockstep::parallel
