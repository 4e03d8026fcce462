// A chunk of rows of the token loss. Computes its statistics and then, when the statistics of the
// whole vocabulary are known, its gradients. Internal to ops.
#pragma once

#include <memory>

#include <ATen/ops/empty.h>

#include "ops/token_loss.h"

namespace lockstep::ops {

/// Gradient of the weight, summed over chunks in float32 (float64 for float64).
struct WeightGradient {
  Tensor sum;     // undefined before the first chunk, and for a single chunk of a 16-bit type
  Tensor result;  // [V, C], set by the last chunk
  bool is_last = false;
  Tensor place;  // memory for the result; undefined: allocate it

  /// Returns the memory for the result.
  Tensor room(const Tensor& weight) const {
    return place.defined() ? place : at::empty(weight.sizes(), weight.options());
  }
};

/// Adds a chunk's contribution to the gradient of the weight: logits_gradient^T hidden.
void add_weight_gradient(
    const Tensor& logits_gradient,  // [n, V], in the weight's type
    const Tensor& hidden,           // [n, C]
    const Tensor& weight,
    WeightGradient& sum);

struct RowGradients {
  // The gradient of the logits is softmax * softmax_factor - target * target_factor, where target
  // is one-hot or a distribution. [n] each, in the type of the statistics.
  Tensor softmax_factor, target_factor;
  Tensor excess_factor;              // factor for the excess of level rows; undefined: no level
                                     // rows
  Tensor hidden;                     // [n, C], written; undefined: not needed
  WeightGradient* weight = nullptr;  // null: not needed
};

class TokenLossRun {
 public:
  virtual ~TokenLossRun() = default;
  virtual RowStatistics statistics() = 0;
  /// Computes the gradients. `whole` contains the statistics of the whole vocabulary. Call once,
  /// after statistics().
  virtual void gradients(const RowStatistics& whole, const RowGradients& gradients) = 0;
};

struct RunInputs {
  Tensor hidden, weight;  // [n, C], [V, C], contiguous
  Tensor target;          // [n] int64: row of the weight; values out of range: the target is not in
                          // this shard
  double softcap = 0;
  bool needs_gradient = false;
  // For a chunk with distribution targets: the distributions of its rows, and
  // TokenLossOptions::combine.
  DistributionTargets distributions;
  int64_t first_token = 0, vocabulary = 0;
  std::function<void(RowStatistics&)> combine;
};

/// Creates a chunk that uses ATen products, for any type and device.
std::unique_ptr<TokenLossRun> make_tensor_run(const RunInputs& inputs);

/// Creates a chunk that uses ATen products, for rows with distribution targets.
std::unique_ptr<TokenLossRun> make_distribution_run(const RunInputs& inputs);

/// Creates a chunk that uses the loops of loss_head_kernel.h. Returns null if this processor, type
/// or device has no loops.
std::unique_ptr<TokenLossRun> make_vector_run(const RunInputs& inputs);
/// Returns true if make_vector_run supports these hidden states.
bool has_vector_run(const Tensor& hidden);

}  // namespace lockstep::ops
