// Schedule-free AdamW.
#include "optim/schedule_free.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "optim/parts.h"

namespace lockstep::optim {
namespace {

class ScheduleFreeAdamW : public Optimizer {
 public:
  explicit ScheduleFreeAdamW(const OptimizerOptions& options)
      : Optimizer(options),
        averaging_(at::zeros({2}, at::kDouble)) {
    if (options.stochastic_rounding) {
      throw Error(
          ErrorKind::kConfig,
          "training.optim=schedule_free_adamw is not supported with precision.stochastic_rounding: "
          "its averages require the float32 masters that this option removes",
          "set precision.stochastic_rounding=false, or use adamw_torch_fused");
    }
  }

  bool has_averages() const override { return true; }
  double state_bytes_per_element() const override { return 3 * sizeof(float); }

  void put_averages(int64_t index, bool are_put) override {
    if (steps() == 0) {
      return;  // before the first step, the average equals the model
    }
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const State& state = states_.at(static_cast<size_t>(index));
    const at::Tensor x = average_of(shard, state);
    if (are_put) {
      shard.parameter.copy_(x);
      return;
    }
    if (!has_master(shard)) {
      x.copy_(shard.parameter);  // the parameter may have been loaded from a checkpoint
    }
    for_each_range(shard, [&](int64_t begin, int64_t count) {
      shard.parameter.narrow(0, begin, count)
          .copy_(at::lerp(
              state.z.narrow(0, begin, count), x.narrow(0, begin, count), options().adam_beta1));
    });
  }

  void visit_state(int64_t index, const StateVisitor& visit) override {
    const State& state = states_.at(static_cast<size_t>(index));
    visit_elements(index, "z", state.z, visit);
    visit_elements(index, "exp_avg_sq", state.exp_avg_sq, visit);
    for (const Segment& segment : shard(index).layout) {
      visit({"averaging", segment.parameter, {2}, 0, averaging_, /*replicated=*/true});
    }
  }

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    const auto zeros = [&] {
      return at::zeros(
          {shard.parameter.numel()}, at::TensorOptions(shard.parameter.device()).dtype(at::kFloat));
    };
    states_.push_back({zeros(), zeros(), has_master(shard) ? at::Tensor() : zeros()});
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const Shard& shard = this->shard(index);
    const State& state = states_.at(static_cast<size_t>(index));
    const at::Tensor x = average_of(shard, state);
    if (steps() == 1) {
      state.z.copy_(has_master(shard) ? shard.master : shard.parameter);
      x.copy_(state.z);
    }
    const double c = share_of_step(learning_rate);
    const double beta1 = options().adam_beta1, beta2 = options().adam_beta2;
    const double correction = 1 - std::pow(beta2, static_cast<double>(steps()));
    for (const Run& run : runs(index)) {
      const UpdateRule& rule = rule_of(run);
      const double rate = learning_rate * rule.learning_rate;
      for_each_range(shard, run.begin, run.end, [&](int64_t begin, int64_t count) {
        const auto part = [&](const at::Tensor& all) { return all.narrow(0, begin, count); };
        const at::Tensor g = part(shard.gradient).to(at::kFloat).mul(gradient_scale);
        const at::Tensor z = part(state.z), mean = part(x);
        const at::Tensor v = part(state.exp_avg_sq).mul_(beta2).addcmul_(g, g, 1 - beta2);
        at::Tensor direction = g.div(v.div(correction).sqrt_().add_(options().adam_epsilon));
        if (rule.weight_decay.value_or(0) > 0) {
          direction.add_(at::lerp(z, mean, beta1), *rule.weight_decay);
        }
        z.sub_(direction, rate);
        mean.lerp_(z, c);
        part(shard.parameter).copy_(at::lerp(z, mean, beta1));
      });
    }
  }

 private:
  struct State {
    at::Tensor z, exp_avg_sq;  // [n]
    at::Tensor average;        // [n]; only if there are no master weights
  };

  static bool has_master(const Shard& shard) {
    return shard.master.defined() && !shard.master.is_same(shard.parameter);
  }
  static const at::Tensor& average_of(const Shard& shard, const State& state) {
    return has_master(shard) ? shard.master : state.average;
  }

  template <class Visit>
  static void for_each_range(const Shard& shard, int64_t begin, int64_t end, const Visit& visit) {
    const int64_t most = elements_of_run(shard.parameter);
    for (; begin < end; begin += most) {
      visit(begin, std::min(most, end - begin));
    }
  }
  template <class Visit>
  static void for_each_range(const Shard& shard, const Visit& visit) {
    for_each_range(shard, 0, shard.parameter.numel(), visit);
  }

  /// Returns the coefficient c of this step. Shards are updated sequentially, and the first one
  /// advances the sum.
  double share_of_step(double learning_rate) {
    if (counted_ != steps()) {
      counted_ = steps();
      auto* numbers = averaging_.mutable_data_ptr<double>();
      numbers[0] = std::max(numbers[0], learning_rate);
      const double weight = numbers[0] * numbers[0];
      numbers[1] += weight;
      share_ = numbers[1] > 0 ? weight / numbers[1] : 0;
    }
    return share_;
  }

  std::vector<State> states_;
  at::Tensor averaging_;
  int64_t counted_ = 0;
  double share_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_schedule_free_adamw(const OptimizerOptions& options) {
  return std::make_unique<ScheduleFreeAdamW>(options);
}

}  // namespace lockstep::optim
