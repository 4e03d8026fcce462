// Lion optimizer.
#include "optim/lion.h"

#include <ATen/core/grad_mode.h>

#include "optim/parts.h"

namespace lockstep::optim {
namespace {

class Lion : public Optimizer {
 public:
  explicit Lion(const OptimizerOptions& options) : Optimizer(options) {}
  void visit_state(int64_t index, const StateVisitor& visit) override {
    visit_elements(index, "exp_avg", exp_avg_.at(static_cast<size_t>(index)), visit);
  }
  double state_bytes_per_element() const override { return sizeof(float); }

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    exp_avg_.push_back(at::zeros(
        {shard.parameter.numel()}, at::TensorOptions(shard.parameter.device()).dtype(at::kFloat)));
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const double beta1 = options().adam_beta1, beta2 = options().adam_beta2;
    const at::Tensor& all = exp_avg_.at(static_cast<size_t>(index));
    for_each_part(
        shard(index),
        runs(index),
        rules(),
        learning_rate,
        gradient_scale,
        [&](const Part& part, int64_t begin) {
          const at::Tensor m = all.narrow(0, begin, part.weight.numel());
          const at::Tensor direction = m.mul(beta1).add_(part.gradient, 1 - beta1).sign_();
          part.weight.mul_(1 - part.learning_rate * part.weight_decay)
              .sub_(direction, part.learning_rate);
          m.mul_(beta2).add_(part.gradient, 1 - beta2);
        });
  }

 private:
  std::vector<at::Tensor> exp_avg_;  // [n] momentum of each shard
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options) {
  return std::make_unique<Lion>(options);
}

}  // namespace lockstep::optim
