// Deferred weight gradients. The backward pass of a linear layer is split in two (Qi et al., "Zero
// Bubble Pipeline Parallelism", 2023, section 2). The input gradient, which another stage waits
// for, is computed immediately. The weight gradient is queued as a closure and computed when the
// rank would otherwise be idle.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/language_model.h"

namespace lockstep::parallel {

using at::Tensor;

/// Deferred work of a backward pass. Each closure computes and accumulates the gradient of one
/// weight.
using DeferredWork = std::vector<std::function<void()>>;

/// Queue of the deferred closures of one stage. Not thread-safe.
class DeferredQueue {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }
  /// Overload for a kernel that may be called more than once per pass. Its closures are merged into
  /// one that accumulates the sum of the gradients.
  void push(const nn::LinearKernel* product, std::function<void()> work);
  /// Returns and removes all queued work.
  DeferredWork take();

 private:
  DeferredWork work_;
  std::unordered_map<const nn::LinearKernel*, size_t> places_;  // keyed by kernel: index in work_
};

/// Makes every linear layer of the model queue its parameters' gradients in `queue`, for any type
/// of kernel. Autograd no longer tracks these parameters. Layers whose input requires no gradient
/// are unchanged, since there is no input gradient to compute first. A second call replaces the
/// queue. Call this after all layer replacements.
void defer_weight_gradients(nn::LanguageModel& model, const std::shared_ptr<DeferredQueue>& queue);
/// Overload for one linear layer.
void defer_weight_gradients(nn::Linear& linear, const std::shared_ptr<DeferredQueue>& queue);

}  // namespace lockstep::parallel
