// Execution of a model's head under an objective.
#pragma once

#include <functional>

#include "nn/language_model.h"
#include "objective/objective.h"

namespace lockstep::objective {

/// Ranks that hold slices of the same rows.
struct RowParts {
  /// Sums their row values in place; all of them must call. Empty: a single rank.
  std::function<void(const Tensor& rows)> sum;
  bool is_first = true;  // this rank counts the values that are known for whole rows
};

/// Returns the result of a micro-batch from the last block's outputs. With gradients: a scalar
/// whose gradient is that of the loss times step.divisor(), and this rank's contribution to the
/// objective's sums: float64 [sums()], or only the loss, [1], if the objective needs no scores.
/// Without gradients: the sums. Every rank that holds a slice of the rows, or a shard of the head
/// or of its parameters, must call. Throws Error (kInternal) if there are no targets.
nn::Tensors run_head(
    const nn::LanguageModel& model,
    const nn::Tensors& inputs,
    const nn::Context& context,
    const Objective& objective,
    const Counts& step,
    const RowParts& parts = {});

}  // namespace lockstep::objective
