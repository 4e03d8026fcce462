// Captured training step: forward and backward passes, reductions, norm, clipping and update as one
// ops::CapturedStep.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/captured_step.h"
#include "parallel/parallel_model.h"

namespace lockstep::parallel {

/// Steps of one shape replayed as a CUDA graph. Loss, norm, learning rate, step count and dropout
/// keys are tensors: the host writes numbers before a step and reads two after it. On the CPU the
/// same code runs directly and gives the same bits as forward_backward and optimizer_step.
class CapturedTraining {
 public:
  /// Returns why steps of this model cannot be captured, in the user's terms; empty if they can.
  /// The same on every rank.
  static std::string obstacle(ParallelModel& model);
  /// Captures steps with the same number and shapes of micro-batches as these. The model must
  /// outlive it.
  CapturedTraining(ParallelModel& model, std::span<const nn::ForwardInputs> micro_batches);
  CapturedTraining(const CapturedTraining&) = delete;
  CapturedTraining& operator=(const CapturedTraining&) = delete;

  /// True if a step of these micro-batches has the captured shapes; other steps run uncaptured.
  bool fits(std::span<const nn::ForwardInputs> micro_batches) const;
  /// Runs a whole step. Every rank must call. Blocks until loss and norm are available. Throws
  /// Error (numeric) as forward_backward does, but after the update.
  StepResult run(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double learning_rate);
  bool is_captured() const { return step_.is_captured(); }

 private:
  void body();

  ParallelModel& model_;
  std::vector<nn::ForwardInputs> inputs_;  // tensors that the body reads
  Tensor mean_;                            // [1] float64: reciprocal of the loss's divisor
  Tensor most_;                            // [1] float64: maximum norm; undefined: no clipping
  Tensor numbers_;                         // coefficients of the optimizer
  Tensor sums_;  // float64: the objective's sums and the squared gradient norm
  ops::CapturedStep step_;
};

}  // namespace lockstep::parallel
