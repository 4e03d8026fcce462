// Activation checkpointing: activations are recomputed in the backward pass instead of stored (Chen
// et al., "Training Deep Nets with Sublinear Memory Cost", 2016). Random numbers replay exactly,
// because dropout masks are a function of position and step.
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
  kSelective,  // the output of the MLP's activation: large, and cheap to recompute
  kFull,       // everything inside a block: only its input is stored
};

struct RecomputeOptions {
  Recompute kind = Recompute::kNone;
  int64_t every = 1;  // every n-th layer, the first included
};

/// Makes the model's layers recompute, around existing wrappers of its units. Call once per model;
/// local to the rank. If linears defer weight gradients to `deferred`, gradients of other
/// parameters inside a recomputed layer are deferred too: the input half of a backward pass
/// recomputes the layer and the weight half finds all it needs. A layer whose input needs no
/// gradient (everything before it is frozen) is stored.
void apply_recompute(
    nn::LanguageModel& model,
    const RecomputeOptions& options,
    const std::shared_ptr<DeferredQueue>& deferred = nullptr);

/// Returns body(inputs), storing only the inputs: the backward pass runs it again. Everything else
/// that `body` reads must stay unchanged and alive. Without gradients, just body(inputs).
Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> body);
std::vector<Tensor> recomputed(
    const std::vector<Tensor>& inputs,
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> body);

/// Parameters whose gradients are deferred by the backward pass of a recomputation.
struct DeferredParameters {
  std::shared_ptr<DeferredQueue> queue;
  std::function<std::vector<Tensor>()> parameters;
};
/// The same, with deferred accumulation of these parameters' gradients.
std::vector<Tensor> recomputed(
    const std::vector<Tensor>& inputs,
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> body,
    DeferredParameters deferred);

}  // namespace lockstep::parallel
