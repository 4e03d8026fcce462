// A step that looks wrong is computed once more before anything is made of it: a processor that
// went wrong once does not go wrong the same way twice, and a bad batch does.
#pragma once

#include <functional>
#include <optional>

#include <c10/core/Device.h>

#include "comm/communicator.h"
#include "parallel/parallel_model.h"
#include "train/spikes.h"

namespace lockstep::train {

/// Has products checked from now on if `wanted` (training.check_products). Error (config) on a GPU.
void guard_products(bool wanted, c10::Device device);

/// What is kept of a step, and what came of the look at it.
struct GuardedStep {
  parallel::StepResult result;
  bool repeated = false;             // it was computed twice
  std::optional<double> wrong = {};  // the first norm, where the second was another; NaN: none
};

/// Watches the gradient's norm and the loss. One a rank.
class StepGuard {
 public:
  /// Runs `compute`, a step's passes without the update, which give the same whenever they run.
  /// Where the loss or the norm is not finite or a spike, and `repeats`, once more, and takes that.
  /// Every rank must call; rank 0 of `world` decides. Error: what `compute` throws the last time.
  GuardedStep run(
      const std::function<parallel::StepResult()>& compute,
      bool repeats,
      comm::Communicator& world);
  /// What the step came to in the end; a spike if its norm is one. Every rank calls it.
  std::optional<Spikes::Spike> observe(const parallel::StepResult& result);

 private:
  bool is_odd(const parallel::StepResult& result) const;

  Spikes norms_, losses_;
};

}  // namespace lockstep::train
