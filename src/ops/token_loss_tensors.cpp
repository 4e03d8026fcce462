// Token loss through ATen products, on any device.
#include <ATen/ATen.h>

#include "ops/cpu/host_loops.h"
#include "ops/products.h"
#include "ops/softmax_rows.h"
#include "ops/token_loss_run.h"

namespace lockstep::ops {
namespace {

/// The row stride of the logits is a multiple of this, so that a device's products are fast for any
/// vocabulary size.
constexpr int64_t kLogitsApart = 64;

/// Returns hidden weight^T, [n, V].
Tensor logits_of(const Tensor& hidden, const Tensor& weight) {
  const int64_t vocabulary = weight.size(0);
  if (has_host_loops(hidden) || vocabulary % kLogitsApart == 0) {
    return matrix_product(hidden, weight.t());
  }
  const int64_t stride = (vocabulary + kLogitsApart - 1) / kLogitsApart * kLogitsApart;
  const Tensor logits =
      at::empty({hidden.size(0), stride}, hidden.options()).narrow(1, 0, vocabulary);
  write_matrix_product(logits, hidden, weight.t());
  return logits;
}

class TensorRun final : public TokenLossRun {
 public:
  explicit TensorRun(const RunInputs& inputs) : inputs_(inputs) {}

  RowStatistics statistics() override {
    logits_ = logits_of(inputs_.hidden, inputs_.weight);
    if (inputs_.softcap > 0) {
      cap_logits(logits_, inputs_.softcap);
    }
    return row_statistics(logits_, inputs_.target);
  }

  void gradients(const RowStatistics& whole, const RowGradients& gradients) override {
    logits_become_gradient(
        logits_,
        inputs_.target,
        whole.total.log().add_(whole.maximum),
        gradients.softmax_factor,
        gradients.target_factor,
        inputs_.softcap);
    if (gradients.hidden.defined()) {
      write_matrix_product(gradients.hidden, logits_, inputs_.weight);
    }
    if (gradients.weight != nullptr) {
      add_weight_gradient(logits_, inputs_.hidden, inputs_.weight, *gradients.weight);
    }
    logits_.reset();
  }

 private:
  RunInputs inputs_;
  Tensor logits_;
};

}  // namespace

void add_weight_gradient(
    const Tensor& logits_gradient,
    const Tensor& hidden,
    const Tensor& weight,
    WeightGradient& sum) {
  const auto type = weight.scalar_type();
  const bool is_small = type == at::kBFloat16 || type == at::kHalf;
  if (sum.sum.defined()) {
    add_matrix_product(sum.sum, logits_gradient.t(), hidden);
  } else {
    const bool is_wide = is_small && !sum.is_last;  // more chunks follow
    sum.sum =
        is_wide ? at::empty(weight.sizes(), weight.options().dtype(at::kFloat)) : sum.room(weight);
    write_matrix_product(sum.sum, logits_gradient.t(), hidden);
  }
  if (sum.is_last) {
    sum.result = sum.sum.scalar_type() == type ? sum.sum : sum.room(weight).copy_(sum.sum);
  }
}

std::unique_ptr<TokenLossRun> make_tensor_run(const RunInputs& inputs) {
  return std::make_unique<TensorRun>(inputs);
}

}  // namespace lockstep::ops
