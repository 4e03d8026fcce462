// Activations that are computed again in the backward pass instead of kept (Chen et al., "Training
// Deep Nets with Sublinear Memory Cost", 2016). Random numbers replay exactly, for dropout's mask
// is a function of place and step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/language_model.h"

namespace lockstep::parallel {

using at::Tensor;

enum class Recompute {
  kNone,
  kSelective,  // what is large and cheap: the output of the MLP's activation (attention keeps no
               // probabilities anyway)
  kFull,       // all that is inside a block: its input alone is kept
};

struct RecomputeOptions {
  Recompute kind = Recompute::kNone;
  int64_t every = 1;  // every so-manieth layer, the first included
};

/// Makes the model's layers recompute, around what acts around its units already. Once a model;
/// local to the rank.
void apply_recompute(nn::LanguageModel& model, const RecomputeOptions& options);

/// body(inputs), keeping the inputs alone: the backward pass runs it again. Everything else that
/// `body` reads must be the same then, and live as long. Where gradients are off, just
/// body(inputs).
Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> body);
std::vector<Tensor> recomputed(
    const std::vector<Tensor>& inputs,
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> body);

}  // namespace lockstep::parallel
