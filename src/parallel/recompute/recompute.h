// Activations that are computed again in the backward pass instead of kept (Chen et al., "Training
// Deep Nets with Sublinear Memory Cost", 2016). Random numbers replay exactly, for dropout's mask
// is a function of place and step.
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
  kSelective,  // what is large and cheap: the output of the MLP's activation (attention keeps no
               // probabilities anyway)
  kFull,       // all that is inside a block: its input alone is kept
};

struct RecomputeOptions {
  Recompute kind = Recompute::kNone;
  int64_t every = 1;  // every n-th layer, the first included
};

/// Makes the model's layers recompute, around what acts around its units already. Once a model;
/// local to the rank. Where its linears leave weight gradients in `deferred`, gradients of other
/// parameters inside a recomputed layer are left there too: the input's half of a backward pass
/// computes the layer again, and the weights' half finds all that it needs; a layer whose input
/// needs no gradient (all before it is frozen) is kept there.
void apply_recompute(
    nn::LanguageModel& model,
    const RecomputeOptions& options,
    const std::shared_ptr<DeferredQueue>& deferred = nullptr);

/// body(inputs), keeping the inputs alone: the backward pass runs it again. Everything else that
/// `body` reads must be the same then, and live as long. Where gradients are off, just
/// body(inputs).
Tensor recomputed(const Tensor& x, std::function<Tensor(const Tensor&)> body);
std::vector<Tensor> recomputed(
    const std::vector<Tensor>& inputs,
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> body);

/// Parameters whose gradients the backward pass of a recomputation leaves for later.
struct DeferredParameters {
  std::shared_ptr<DeferredQueue> queue;
  std::function<std::vector<Tensor>()> parameters;
};
/// The same, where these parameters' gradients are not accumulated at once.
std::vector<Tensor> recomputed(
    const std::vector<Tensor>& inputs,
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> body,
    DeferredParameters deferred);

}  // namespace lockstep::parallel
