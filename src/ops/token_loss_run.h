// One run of rows of the token loss: statistics first, then, when those of the whole vocabulary
// are known, the gradients. Internal to ops.
#pragma once

#include <memory>

#include <ATen/ops/empty.h>

#include "ops/token_loss.h"

namespace lockstep::ops {

/// The gradient of the weight, summed over runs in float32 (in float64 for that type).
struct WeightGradient {
  Tensor sum;     // undefined before the first run, and where one run of a smaller type is all
  Tensor result;  // [V, C], set by the last run
  bool is_last = false;
  Tensor place;  // for the result; undefined: memory of its own

  /// Memory for a tensor that becomes the result.
  Tensor room(const Tensor& weight) const {
    return place.defined() ? place : at::empty(weight.sizes(), weight.options());
  }
};

/// Adds what a run gives to the weight's gradient: logits_gradient^T hidden.
void add_weight_gradient(
    const Tensor& logits_gradient,  // [n, V], of the weight's type
    const Tensor& hidden,           // [n, C]
    const Tensor& weight,
    WeightGradient& sum);

struct RowGradients {
  // softmax * softmax_factor - target * target_factor is the gradient of the logits, the target
  // being one at a token, or a distribution; [n] each, of the statistics' type.
  Tensor softmax_factor, target_factor;
  Tensor excess_factor;              // the same of level rows' excess; undefined: there are none
  Tensor hidden;                     // [n, C], written; undefined: not needed
  WeightGradient* weight = nullptr;  // null: not needed
};

class TokenLossRun {
 public:
  virtual ~TokenLossRun() = default;
  virtual RowStatistics statistics() = 0;
  /// `whole`: of all parts of the vocabulary. Once, after statistics().
  virtual void gradients(const RowStatistics& whole, const RowGradients& gradients) = 0;
};

struct RunInputs {
  Tensor hidden, weight;  // [n, C], [V, C], contiguous
  Tensor target;          // [n] int64: the row of the weight; others: not in this part
  double softcap = 0;
  bool needs_gradient = false;
  // Of a run that compares distributions: those of the run's rows, and TokenLossOptions::combine.
  DistributionTargets distributions;
  int64_t first_token = 0, vocabulary = 0;
  std::function<void(RowStatistics&)> combine;
};

/// By ATen's products: any type, any device.
std::unique_ptr<TokenLossRun> make_tensor_run(const RunInputs& inputs);

/// The same where rows have distributions for targets.
std::unique_ptr<TokenLossRun> make_distribution_run(const RunInputs& inputs);

/// By our own products. Null where this processor, type or device has none.
std::unique_ptr<TokenLossRun> make_vector_run(const RunInputs& inputs);
/// Whether there is one.
bool has_vector_run(const Tensor& hidden);

}  // namespace lockstep::ops
