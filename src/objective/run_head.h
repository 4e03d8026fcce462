// The head of a model under an objective.
#pragma once

#include <functional>

#include "nn/language_model.h"
#include "objective/objective.h"

namespace lockstep::objective {

/// The ranks that hold parts of the same rows.
struct RowParts {
  /// Adds up what they have of each row, in place; called by all of them. Empty: there is one.
  std::function<void(const Tensor& rows)> sum;
  bool is_first = true;  // what is known of whole rows is counted by one of them
};

/// What a micro-batch gives, from the tensors that the last block gave. Where gradients are on: a
/// scalar whose gradient is that of the loss times step.divisor(), and what this rank adds to the
/// objective's sums: float64 [sums()], or the loss alone, [1], where it needs no scores. Where they
/// are off: the sums. Every rank that holds a part of the rows, of the head or of its parameters
/// must call. Error (kInternal): no targets.
nn::Tensors run_head(
    const nn::LanguageModel& model,
    const nn::Tensors& inputs,
    const nn::Context& context,
    const Objective& objective,
    const Counts& step,
    const RowParts& parts = {});

}  // namespace lockstep::objective
