// Verification of a plan against a single rank: compares losses and all gradients on the same
// batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/parallelize.h"

namespace lockstep::parallel {

struct VerifyOptions {
  int64_t steps = 2;
  int64_t rows = 4;     // sequences per step, over all data ranks and micro-batches
  int64_t length = 64;  // number of tokens per sequence
  uint64_t seed = 42;   // seed of tokens and dropout
  double tolerance = 1e-4;
  double learning_rate = 1e-3;
  /// For objectives over answers: 2 for preference pairs (`rows` counts pairs), 1 for single
  /// answers, of which every second is rejected. 0: plain text rows.
  int64_t rows_at_once = 0;
  bool are_rewarded = false;    // one class per row, predicted at its last token
  bool learns_prompts = false;  // the prompts of chosen rows are also targets, counted separately
  bool has_documents = false;   // rows hold several documents that do not attend to each other
  bool are_packed = false;      // each micro-batch is packed into one row
  bool forgets = false;         // rows cycle through the forget set, the alternative (only with 3
                                // rows) and the retain set
  /// Modifies the rows for the task before they are counted; empty: no change.
  std::function<void(nn::ForwardInputs& rows)> mark = nullptr;
  /// Creates the objective's reference model; empty, or null result: no reference model.
  std::function<std::shared_ptr<objective::Reference>(
      ParallelModel& model, const Plan& plan, ParallelGroups& axes)>
      refer = nullptr;
};

struct VerifiedLoss {
  double one = 0, plan = 0;  // nats per token
};

/// Comparison of a parameter's gradient over all steps. Errors are relative to the gradient's
/// largest element or to a thousandth of the model's largest gradient, whichever is larger. The
/// second bound applies to gradients that are zero except for rounding.
struct VerifiedGradient {
  std::string name;
  double largest = 0;   // largest element on a single rank in the first step
  double error = 0;     // largest error over all steps
  int64_t step = 0;     // step of the largest error, counted from 1
  int64_t element = 0;  // index of the largest error in the flattened parameter
  double one = 0, plan = 0;
};

struct Verification {
  std::vector<VerifiedLoss> losses;         // one entry per step
  std::vector<VerifiedGradient> gradients;  // sorted by order of use
  /// Description of the first difference that exceeds the tolerance; nullopt: no such difference.
  std::optional<std::string> first_difference;
};

/// Trains `options.steps` steps on rank 0 alone and under the plan, with the same initial weights
/// and the same random tokens. AdamW's epsilon is raised to at least 1e-5 and Lion's learning rate
/// is divided by 100, so that rounding differences do not grow from step to step. Must be called on
/// every rank. Rank 0 holds the whole model in addition to its shard. The result is complete on
/// rank 0; other ranks get only `first_difference`.
Verification verify(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes, const VerifyOptions& options);

}  // namespace lockstep::parallel
