// Weight gradients that can wait: the backward pass of a linear in two halves (Qi et al., "Zero
// Bubble Pipeline Parallelism", 2023, section 2). The input's gradient, for which another stage
// waits, is made at once; the weights' is handed out as a closure and made when there is time.
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

/// What a backward pass left for later. A call makes one weight's gradient and accumulates it.
using DeferredWork = std::vector<std::function<void()>>;

/// Where the linears of one stage leave their closures; one thread uses it.
class DeferredQueue {
 public:
  void push(std::function<void()> work) { work_.push_back(std::move(work)); }
  /// The same of a product, which may have been called more than once in the pass: its parameters
  /// get one gradient, the sum.
  void push(const nn::LinearKernel* product, std::function<void()> work);
  /// All that was left since the last call.
  DeferredWork take();

 private:
  DeferredWork work_;
  std::unordered_map<const nn::LinearKernel*, size_t> places_;  // in it, of products
};

/// Makes every linear of the model leave the gradients of its product's parameters in `queue`,
/// whatever it is made of. Autograd then does not see these parameters. Where a linear's input
/// needs no gradient there is no half to do first: there it stays as it was. Where it is called
/// again the last queue gets them. To be called after layers were swapped.
void defer_weight_gradients(nn::LanguageModel& model, const std::shared_ptr<DeferredQueue>& queue);
/// The same of one linear.
void defer_weight_gradients(nn::Linear& linear, const std::shared_ptr<DeferredQueue>& queue);

}  // namespace lockstep::parallel
