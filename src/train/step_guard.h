// Computes suspicious steps a second time before their update is applied. A transient hardware
// error is unlikely to occur twice in the same way, whereas a bad batch gives the same result
// again.
#pragma once

#include <functional>
#include <optional>

#include <c10/core/Device.h>

#include "comm/communicator.h"
#include "parallel/parallel_model.h"
#include "train/spikes.h"

namespace lockstep::train {

/// Enables checking of matrix products if `wanted` (training.check_products). Throws Error (config)
/// on a GPU.
void guard_products(bool wanted, c10::Device device);

/// Result of a step and of its check.
struct GuardedStep {
  parallel::StepResult result;
  bool repeated = false;  // the step was computed twice
  std::optional<double> wrong =
      {};  // first gradient norm if the second computation differed; may be NaN
};

/// Monitors the gradient norm and the loss. Each rank has one instance.
class StepGuard {
 public:
  /// Runs `compute`, the forward and backward passes of a step, which must be deterministic. If the
  /// loss or the gradient norm is NaN, Inf or a spike and `repeats` is true, runs it again and uses
  /// the second result. Rank 0 of `world` decides for all ranks. Rethrows exceptions of the last
  /// call of `compute`. Must be called on every rank.
  GuardedStep run(
      const std::function<parallel::StepResult()>& compute,
      bool repeats,
      comm::Communicator& world);
  /// Records the final result of the step. Returns a spike if its gradient norm is one. Must be
  /// called on every rank.
  std::optional<Spikes::Spike> observe(const parallel::StepResult& result);

 private:
  bool is_odd(const parallel::StepResult& result) const;

  Spikes norms_, losses_;
};

}  // namespace lockstep::train
