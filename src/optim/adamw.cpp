// AdamW with float32 moments.
#include "optim/adamw.h"

#include <algorithm>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "ops/adamw.h"
#include "ops/host_memory.h"

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
  /// Returns [rules, kAdamWNumbers], in the order of rules().
  at::Tensor numbers(double learning_rate) const override {
    std::vector<at::Tensor> rows;
    for (const UpdateRule& rule : rules()) {
      ops::AdamWStep step = step_of(rule, learning_rate, 1.0);
      step.step = std::max<int64_t>(step.step, 1);  // so that the numbers are valid before the
                                                    // first step
      rows.push_back(ops::adamw_numbers(step));
    }
    return rows.empty() ? at::empty({0, ops::kAdamWNumbers}) : at::stack(rows);
  }
  void update_by(
      int64_t index, const at::Tensor& numbers, const at::Tensor& gradient_scale) override {
    const at::NoGradGuard no_grad;
    numbers.select(1, 0).copy_(gradient_scale.expand({numbers.size(0)}));
    for (const Run& run : runs(index)) {
      ops::adamw_step_by(part_of(index, run), numbers[static_cast<int64_t>(run.rule)]);
    }
  }

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    const at::TensorOptions type = at::TensorOptions(shard.parameter.device()).dtype(at::kFloat);
    states_.push_back(
        {ops::new_zeros(shard.parameter.numel(), type),
         ops::new_zeros(shard.parameter.numel(), type)});
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    for (const Run& run : runs(index)) {
      ops::adamw_step(part_of(index, run), step_of(rule_of(run), learning_rate, gradient_scale));
    }
  }

 private:
  ops::AdamWStep step_of(
      const UpdateRule& rule, double learning_rate, double gradient_scale) const {
    return {
        .learning_rate = learning_rate * rule.learning_rate,
        .beta1 = options().adam_beta1,
        .beta2 = options().adam_beta2,
        .epsilon = options().adam_epsilon,
        .weight_decay = rule.weight_decay.value_or(0),
        .gradient_scale = gradient_scale,
        .step = steps()};
  }

  struct State {
    at::Tensor exp_avg, exp_avg_sq;  // [n]
  };

  ops::AdamWBuffers part_of(int64_t index, const Run& run) {
    const Shard& shard = this->shard(index);
    const State& state = states_.at(static_cast<size_t>(index));
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, run.begin, run.end - run.begin) : at::Tensor();
    };
    const bool has_master = shard.master.defined() && !shard.master.is_same(shard.parameter);
    const at::Tensor gradient = part(shard.gradient);
    return {
        .parameter = part(shard.parameter),
        .master = has_master ? part(shard.master) : at::Tensor(),
        .gradient = gradient.scalar_type() == at::kDouble ? gradient.to(at::kFloat) : gradient,
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
