// SGD optimizer.
#include "optim/sgd.h"

#include <ATen/core/grad_mode.h>

#include "optim/parts.h"

namespace lockstep::optim {
namespace {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options) : Optimizer(options) {}
  void visit_state(int64_t /*index*/, const StateVisitor& /*visit*/) override {}
  double state_bytes_per_element() const override { return 0; }

 protected:
  void make_state(int64_t /*index*/, const Shard& /*shard*/) override {}
  void update_shard(int64_t index, double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    for_each_part(
        shard(index),
        runs(index),
        rules(),
        learning_rate,
        gradient_scale,
        [&](const Part& part, int64_t) {
          part.gradient.add_(part.weight, part.weight_decay);
          part.weight.sub_(part.gradient, part.learning_rate);
        });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options) {
  return std::make_unique<Sgd>(options);
}

}  // namespace lockstep::optim
