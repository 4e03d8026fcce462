// A training step that the host launches at once: forward and backward passes, reductions, norm,
// clipping and update as one ops::CapturedStep.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/captured_step.h"
#include "parallel/parallel_model.h"

namespace lockstep::parallel {

/// Steps of one shape through a CUDA graph. Loss, norm, learning rate, the count of steps and the
/// keys of dropouts are in tensors: the host writes numbers before a step and reads two after it.
/// On the CPU the same body runs as it is, to the same bits as forward_backward and optimizer_step.
class CapturedTraining {
 public:
  /// Why steps of this model cannot be captured, in the user's words; empty: they can. The same on
  /// every rank.
  static std::string obstacle(ParallelModel& model);
  /// For steps like this one: as many micro-batches, of the same shapes. The model must outlive it.
  CapturedTraining(ParallelModel& model, std::span<const nn::ForwardInputs> micro_batches);
  CapturedTraining(const CapturedTraining&) = delete;
  CapturedTraining& operator=(const CapturedTraining&) = delete;

  /// Whether a step of these is of the captured shapes. One that is not is the model's own.
  bool fits(std::span<const nn::ForwardInputs> micro_batches) const;
  /// A whole step. Every rank must call. Blocks until loss and norm are there. Error (numeric) as
  /// forward_backward, but after the update.
  StepResult run(
      std::span<const nn::ForwardInputs> micro_batches,
      const objective::Counts& step,
      double learning_rate);
  bool is_captured() const { return step_.is_captured(); }

 private:
  void body();

  ParallelModel& model_;
  std::vector<nn::ForwardInputs> inputs_;  // the tensors that the body reads
  Tensor mean_;                            // [1] float64: one over what the loss is divided by
  Tensor most_;     // [1] float64: what the norm is clipped to; undefined: it is not
  Tensor numbers_;  // of the optimizer
  Tensor sums_;     // float64: the objective's, and the squares of the gradients
  ops::CapturedStep step_;
};

}  // namespace lockstep::parallel
