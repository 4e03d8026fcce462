// The token loss by ATen's products, on any device.
#include <ATen/ATen.h>

#include "ops/softmax_rows.h"
#include "ops/token_loss_run.h"

namespace lockstep::ops {
namespace {

class TensorRun final : public TokenLossRun {
 public:
  explicit TensorRun(const RunInputs& inputs) : inputs_(inputs) {}

  RowStatistics statistics() override {
    logits_ = at::mm(inputs_.hidden, inputs_.weight.t());  // [n, V]
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
      Tensor result = gradients.hidden;
      at::mm_out(result, logits_, inputs_.weight);
    }
    if (gradients.weight != nullptr) {
      add(*gradients.weight);
    }
    logits_.reset();
  }

 private:
  void add(WeightGradient& weight) const {
    const auto type = logits_.scalar_type();
    const bool is_small = type == at::kBFloat16 || type == at::kHalf;
    if (!weight.sum.defined() && is_small && !weight.is_last) {
      weight.sum = at::mm(logits_.t(), inputs_.hidden).to(at::kFloat);
    } else if (!weight.sum.defined()) {
      weight.sum = weight.room(inputs_.weight);
      at::mm_out(weight.sum, logits_.t(), inputs_.hidden);
    } else if (is_small) {
      weight.sum.add_(at::mm(logits_.t(), inputs_.hidden));
    } else {
      weight.sum.addmm_(logits_.t(), inputs_.hidden);
    }
    if (weight.is_last) {
      weight.result = weight.sum.scalar_type() == type
                          ? weight.sum
                          : weight.room(inputs_.weight).copy_(weight.sum);
    }
  }

  RunInputs inputs_;
  Tensor logits_;
};

}  // namespace

std::unique_ptr<TokenLossRun> make_tensor_run(const RunInputs& inputs) {
  return std::make_unique<TensorRun>(inputs);
}

}  // namespace lockstep::ops
