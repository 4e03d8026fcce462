// AdEMAMix optimizer.
#include "optim/ademamix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "optim/parts.h"

namespace lockstep::optim {
namespace {

class AdEMAMix : public Optimizer {
 public:
  explicit AdEMAMix(const OptimizerOptions& options) : Optimizer(options) {}

  void visit_state(int64_t index, const StateVisitor& visit) override {
    const State& state = states_.at(static_cast<size_t>(index));
    visit_elements(index, "exp_avg", state.exp_avg, visit);
    visit_elements(index, "exp_avg_slow", state.exp_avg_slow, visit);
    visit_elements(index, "exp_avg_sq", state.exp_avg_sq, visit);
  }
  double state_bytes_per_element() const override { return 3 * sizeof(float); }

 protected:
  void make_state(int64_t /*index*/, const Shard& shard) override {
    const auto zeros = [&] {
      return at::zeros(
          {shard.parameter.numel()}, at::TensorOptions(shard.parameter.device()).dtype(at::kFloat));
    };
    states_.push_back({zeros(), zeros(), zeros()});
  }

  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const double beta1 = options().adam_beta1, beta2 = options().adam_beta2;
    const double beta3 = ademamix_beta3(options().ademamix, beta1, steps());
    const double alpha = ademamix_alpha(options().ademamix, steps());
    const auto step = static_cast<double>(steps());
    const double of_mean = 1 - std::pow(beta1, step), of_squares = 1 - std::pow(beta2, step);
    const State& state = states_.at(static_cast<size_t>(index));
    for_each_part(
        shard(index),
        runs(index),
        rules(),
        learning_rate,
        gradient_scale,
        [&](const Part& part, int64_t begin) {
          const auto some = [&](const at::Tensor& all) {
            return all.narrow(0, begin, part.weight.numel());
          };
          const at::Tensor& g = part.gradient;
          const at::Tensor m = some(state.exp_avg).mul_(beta1).add_(g, 1 - beta1);
          const at::Tensor s = some(state.exp_avg_slow).mul_(beta3).add_(g, 1 - beta3);
          const at::Tensor v = some(state.exp_avg_sq).mul_(beta2).addcmul_(g, g, 1 - beta2);
          const at::Tensor direction = m.div(of_mean).add_(s, alpha).div_(
              v.div(of_squares).sqrt_().add_(options().adam_epsilon));
          part.weight.mul_(1 - part.learning_rate * part.weight_decay)
              .sub_(direction, part.learning_rate);
        });
  }

 private:
  struct State {
    at::Tensor exp_avg, exp_avg_slow, exp_avg_sq;  // [n]
  };
  std::vector<State> states_;
};

}  // namespace

double ademamix_alpha(const AdEMAMixOptions& options, int64_t step) {
  return options.t_alpha == 0
             ? options.alpha
             : std::min(1.0, static_cast<double>(step) / options.t_alpha) * options.alpha;
}

double ademamix_beta3(const AdEMAMixOptions& options, double beta1, int64_t step) {
  const double share =
      options.t_beta3 == 0 ? 1 : std::min(1.0, static_cast<double>(step) / options.t_beta3);
  if (share == 1 || beta1 == 0 || options.beta3 == 0) {
    return options.beta3;
  }
  const double first = std::log(beta1), last = std::log(options.beta3);
  return std::exp(first * last / ((1 - share) * last + share * first));
}

std::unique_ptr<Optimizer> make_ademamix(const OptimizerOptions& options) {
  return std::make_unique<AdEMAMix>(options);
}

}  // namespace lockstep::optim
