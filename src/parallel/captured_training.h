// A captured training step: forward and backward passes, gradient reduction, norm, clipping and
// optimizer update in one ops::CapturedStep.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/captured_step.h"
#include "parallel/parallel_model.h"

namespace lockstep::parallel {

/// Replays training steps of a fixed shape as a CUDA graph. Loss, norm, learning rate, step count
/// and dropout keys are device tensors: the host writes the inputs before a step and reads the loss
/// and the norm after it. On the CPU the same code runs without a graph and gives the same bits as
/// forward_backward and optimizer_step.
class CapturedTraining {
 public:
  /// Returns the reason why steps of this model cannot be captured, as a message for the user;
  /// empty if they can be captured. The result is the same on every rank.
  static std::string obstacle(ParallelModel& model);
  /// Captures steps that have the same number and shapes of micro-batches as `micro_batches`. The
  /// model must outlive this object.
  CapturedTraining(ParallelModel& model, std::span<const nn::ForwardInputs> micro_batches);
  CapturedTraining(const CapturedTraining&) = delete;
  CapturedTraining& operator=(const CapturedTraining&) = delete;

  /// Returns true if these micro-batches have the captured shapes. Other steps must run without
  /// capture.
  bool fits(std::span<const nn::ForwardInputs> micro_batches) const;
  /// Runs a whole training step. Must be called on every rank. Blocks until loss and norm are
  /// available. Throws Error (numeric) as forward_backward does, but only after the update.
  StepResult run(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double learning_rate);
  bool is_captured() const { return step_.is_captured(); }

 private:
  void body();

  ParallelModel& model_;
  std::vector<nn::ForwardInputs> inputs_;  // tensors that the captured body reads
  Tensor mean_;                            // [1] float64: reciprocal of the divisor of the loss
  Tensor most_;                            // [1] float64: maximum gradient norm; undefined: no
                                           // clipping
  Tensor numbers_;                         // scalars of the optimizer step
  Tensor sums_;  // float64: sums of the objective, then the squared gradient norm
  ops::CapturedStep step_;
};

}  // namespace lockstep::parallel
