// Deferred weight gradients: the backward pass of a linear in two halves (Qi et al., "Zero Bubble
// Pipeline Parallelism", 2023, section 2). The input gradient, for which another stage waits, is
// computed at once; the weight gradient is queued as a closure and computed when the rank would
// otherwise idle.
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

/// Deferred work of a backward pass. Each call computes the gradient of one weight and accumulates
/// it.
using DeferredWork = std::vector<std::function<void()>>;

/// Queue of closures of one stage's linears; used by one thread.
class DeferredQueue {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }
  /// The same for a kernel that may have been called more than once in the pass: its parameters get
  /// one gradient, the sum.
  void push(const nn::LinearKernel* product, std::function<void()> work);
  /// Returns and removes all queued work.
  DeferredWork take();

 private:
  DeferredWork work_;
  std::unordered_map<const nn::LinearKernel*, size_t> places_;  // index in work_, by kernel
};

/// Makes every linear of the model queue the gradients of its kernel's parameters in `queue`, for
/// any kind of kernel. Autograd then no longer tracks these parameters. Linears whose input needs
/// no gradient are unchanged, since they have no first half. If called again, the last queue is
/// used. Call after layers have been replaced.
void defer_weight_gradients(nn::LanguageModel& model, const std::shared_ptr<DeferredQueue>& queue);
/// The same for one linear.
void defer_weight_gradients(nn::Linear& linear, const std::shared_ptr<DeferredQueue>& queue);

}  // namespace lockstep::parallel
