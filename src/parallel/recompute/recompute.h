// Activation checkpointing: activations are recomputed in the backward pass instead of being stored
// (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). Random numbers are
// reproduced exactly, because dropout masks are a function of position and step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/language_model.h"
#include "parallel/autograd/deferred.h"

namespace lockstep::parallel {

using at::Tensor;

enum class Recompute {
  kNone,
  kSelective,  // the output of the MLP activation, which is large and cheap to recompute
  kFull,       // all activations of a block; only its input is stored
};

struct RecomputeOptions {
  Recompute kind = Recompute::kNone;
  int64_t every = 1;  // recompute every n-th layer, starting with the first
};

/// Enables recomputation in the model's layers, around existing wrappers of its units. Call once
/// per model; does not communicate. If linear layers defer weight gradients to `deferred`, the
/// gradients of other parameters in a recomputed layer are deferred too: the input half of the
/// backward pass recomputes the layer and keeps what the weight half needs. A layer is stored
/// instead if its input requires no gradient (all earlier layers are frozen).
void apply_recompute(
    nn::LanguageModel& model,
    const RecomputeOptions& options,
    const std::shared_ptr<DeferredQueue>& deferred = nullptr);

/// Returns body(inputs) and stores only the inputs; the backward pass runs `body` again. All other
/// data that `body` reads must stay alive and unchanged. If gradients are disabled, just calls
/// body(inputs).
Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> body);
std::vector<Tensor> recomputed(
    const std::vector<Tensor>& inputs,
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> body);

/// Parameters whose gradients are deferred when a recomputed function runs its backward pass.
struct DeferredParameters {
  std::shared_ptr<DeferredQueue> queue;
  std::function<std::vector<Tensor>()> parameters;
};
/// Overload that defers the accumulation of the gradients of the given parameters.
std::vector<Tensor> recomputed(
    const std::vector<Tensor>& inputs,
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> body,
    DeferredParameters deferred);

}  // namespace lockstep::parallel
