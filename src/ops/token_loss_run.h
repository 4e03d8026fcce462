// One run of rows of the token loss: first statistics and then, when those of the whole vocabulary
// are known, the gradients. Internal to ops.
#pragma once

#include <memory>

#include <ATen/ops/empty.h>

#include "ops/token_loss.h"

namespace lockstep::ops {

/// Gradient of the weight, summed over runs in float32 (float64 for that type).
struct WeightGradient {
  Tensor sum;     // undefined before the first run, and for a single run of a 16-bit type
  Tensor result;  // [V, C], set by the last run
  bool is_last = false;
  Tensor place;  // memory for the result; undefined: allocated

  /// Returns memory for the result.
  Tensor room(const Tensor& weight) const {
    return place.defined() ? place : at::empty(weight.sizes(), weight.options());
  }
};

/// Adds a run's contribution to the weight's gradient: logits_gradient^T hidden.
void add_weight_gradient(
    const Tensor& logits_gradient,  // [n, V], of the weight's type
    const Tensor& hidden,           // [n, C]
    const Tensor& weight,
    WeightGradient& sum);

struct RowGradients {
  // The gradient of the logits is softmax * softmax_factor - target * target_factor, with target
  // one-hot or a distribution; [n] each, of the statistics' type.
  Tensor softmax_factor, target_factor;
  Tensor excess_factor;              // factor of the excess of level rows; undefined: no level rows
  Tensor hidden;                     // [n, C], output; undefined: not needed
  WeightGradient* weight = nullptr;  // null if not needed
};

class TokenLossRun {
 public:
  virtual ~TokenLossRun() = default;
  virtual RowStatistics statistics() = 0;
  /// `whole` are the statistics of the whole vocabulary. Called once, after statistics().
  virtual void gradients(const RowStatistics& whole, const RowGradients& gradients) = 0;
};

struct RunInputs {
  Tensor hidden, weight;  // [n, C], [V, C], contiguous
  Tensor target;          // [n] int64: row of the weight; other values: not in this shard
  double softcap = 0;
  bool needs_gradient = false;
  // For a run with distribution targets: the distributions of its rows, and
  // TokenLossOptions::combine.
  DistributionTargets distributions;
  int64_t first_token = 0, vocabulary = 0;
  std::function<void(RowStatistics&)> combine;
};

/// Run by ATen's products, for any type and device.
std::unique_ptr<TokenLossRun> make_tensor_run(const RunInputs& inputs);

/// Run by ATen's products for rows with distribution targets.
std::unique_ptr<TokenLossRun> make_distribution_run(const RunInputs& inputs);

/// Run by the loops of loss_head_kernel.h. Null if this processor, type or device has none.
std::unique_ptr<TokenLossRun> make_vector_run(const RunInputs& inputs);
/// True if make_vector_run supports these hidden states.
bool has_vector_run(const Tensor& hidden);

}  // namespace lockstep::ops
