// Runs a model's head under an objective.
#pragma once

#include <functional>

#include "nn/language_model.h"
#include "objective/objective.h"

namespace lockstep::objective {

/// Ranks that hold slices of the same rows.
struct RowParts {
  /// Sums row values over these ranks in place. Must be called on all of them. Empty: there is only
  /// one rank.
  std::function<void(const Tensor& rows)> sum;
  bool is_first = true;  // this rank counts the values that are the same on all of these ranks
};

/// Returns the result of a micro-batch from the outputs of the last block. With gradients: a scalar
/// whose gradient is that of the loss times step.divisor(), and this rank's contribution to the
/// objective's sums, which is float64 [sums()], or only the loss, [1], if the objective needs no
/// scores. Without gradients: the sums. Must be called on every rank that holds a slice of the
/// rows, or a shard of the head or of its parameters. Throws Error (kInternal) if there are no
/// targets.
nn::Tensors run_head(
    const nn::LanguageModel& model,
    const nn::Tensors& inputs,
    const nn::Context& context,
    const Objective& objective,
    const Counts& step,
    const RowParts& parts = {});

}  // namespace lockstep::objective
