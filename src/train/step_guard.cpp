// Recomputes suspicious steps.
#include "train/step_guard.h"

#include <cmath>
#include <limits>

#include <ATen/ops/full.h>

#include "base/error.h"
#include "ops/checked_products.h"

namespace lockstep::train {

void guard_products(bool wanted, c10::Device device) {
  if (wanted && !device.is_cpu()) {
    throw Error(
        ErrorKind::kConfig,
        "training.check_products is on, but matrix products on a GPU are not checked",
        "train with use_cpu=true, or use training.replay_spikes=true instead");
  }
  ops::check_products(wanted);
}

bool StepGuard::is_odd(const parallel::StepResult& result) const {
  return !result.overflowed && (norms_.look(result.gradient_norm) || losses_.look(result.loss));
}

GuardedStep StepGuard::run(
    const std::function<parallel::StepResult()>& compute, bool repeats, comm::Communicator& world) {
  GuardedStep step;
  parallel::StepResult first;
  first.loss = first.gradient_norm = std::numeric_limits<double>::quiet_NaN();
  bool odd = false;
  try {
    step.result = compute();
    first = step.result;
    odd = is_odd(step.result);
  } catch (const Error& error) {
    if (!repeats || error.kind() != ErrorKind::kNumeric) {
      throw;
    }
    odd = true;  // the sums are the same on all ranks, so all of them throw
  }
  if (repeats) {
    const at::Tensor decision = at::full({1}, odd ? 1.0 : 0.0, at::kDouble);
    world.broadcast(decision, 0).wait();
    if (decision.item<double>() > 0) {
      step.repeated = true;
      step.result = compute();
      if (!(step.result.gradient_norm == first.gradient_norm && step.result.loss == first.loss)) {
        step.wrong = first.gradient_norm;
      }
    }
  }
  return step;
}

std::optional<Spikes::Spike> StepGuard::observe(const parallel::StepResult& result) {
  if (result.overflowed) {
    return std::nullopt;
  }
  (void)losses_.observe(result.loss);
  return norms_.observe(result.gradient_norm);
}

}  // namespace lockstep::train
