#include "optim/adamw.h"

#include <algorithm>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "ops/adamw.h"

namespace lockstep::optim {
namespace {

class AdamW : public Optimizer {
 public:
  explicit AdamW(const OptimizerOptions& options) : Optimizer(options) {}

  void visit_state(int64_t index, const StateVisitor& visit) override {
    const State& state = states_.at(static_cast<size_t>(index));
    visit_elements(index, "exp_avg", state.exp_avg, visit);
    visit_elements(index, "exp_avg_sq", state.exp_avg_sq, visit);
  }
  double state_bytes_per_element() const override { return 2 * sizeof(float); }

  bool can_be_captured() const override { return true; }
  /// [2, kAdamWNumbers]: of elements that decay, and of those that do not.
  at::Tensor numbers(double learning_rate) const override {
    ops::AdamWStep step = step_of(learning_rate, 1.0);
    step.step = std::max<int64_t>(step.step, 1);  // before the first one
    const at::Tensor decayed = ops::adamw_numbers(step);
    step.weight_decay = 0;
    return at::stack({decayed, ops::adamw_numbers(step)});
  }
  void update_by(
      int64_t index, const at::Tensor& numbers, const at::Tensor& gradient_scale) override {
    const at::NoGradGuard no_grad;
    numbers.select(1, 0).copy_(gradient_scale.expand({2}));
    const Shard& shard = this->shard(index);
    const State& state = states_.at(static_cast<size_t>(index));
    const int64_t count = shard.parameter.numel();
    ops::adamw_step_by(part_of(shard, state, 0, shard.decayed), numbers[0]);
    ops::adamw_step_by(part_of(shard, state, shard.decayed, count), numbers[1]);
  }

 protected:
  void make_state(const Shard& shard) override {
    const at::TensorOptions type = at::TensorOptions(shard.parameter.device()).dtype(at::kFloat);
    states_.push_back(
        {at::zeros({shard.parameter.numel()}, type), at::zeros({shard.parameter.numel()}, type)});
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const State& state = states_.at(static_cast<size_t>(index));
    ops::AdamWStep step = step_of(learning_rate, gradient_scale);
    // The decayed elements come first, so weight decay is one cut.
    ops::adamw_step(part_of(shard, state, 0, shard.decayed), step);
    step.weight_decay = 0;
    ops::adamw_step(part_of(shard, state, shard.decayed, shard.parameter.numel()), step);
  }

 private:
  ops::AdamWStep step_of(double learning_rate, double gradient_scale) const {
    return {
        .learning_rate = learning_rate,
        .beta1 = options().adam_beta1,
        .beta2 = options().adam_beta2,
        .epsilon = options().adam_epsilon,
        .weight_decay = options().weight_decay,
        .gradient_scale = gradient_scale,
        .step = steps()};
  }

  struct State {
    at::Tensor exp_avg, exp_avg_sq;  // [n]
  };

  /// Elements [begin, end) of the shard.
  static ops::AdamWBuffers part_of(
      const Shard& shard, const State& state, int64_t begin, int64_t end) {
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, begin, end - begin) : at::Tensor();
    };
    const bool has_master = shard.master.defined() && !shard.master.is_same(shard.parameter);
    return {
        .parameter = part(shard.parameter),
        .master = has_master ? part(shard.master) : at::Tensor(),
        .gradient = part(shard.gradient),
        .exp_avg = part(state.exp_avg),
        .exp_avg_sq = part(state.exp_avg_sq)};
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options) {
  return std::make_unique<AdamW>(options);
}

}  // namespace lockstep::optim
