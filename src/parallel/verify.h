// Whether a plan computes what one rank computes: losses and every gradient, on the same batch.
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
  int64_t rows = 4;     // sequences of a step, dealt to the data-parallel ranks and micro-batches
  int64_t length = 64;  // tokens of each
  uint64_t seed = 42;   // of the tokens and of dropout
  double tolerance = 1e-4;
  double learning_rate = 1e-3;
  /// Of objectives that judge answers: rows of a pair (2), or 1, of which every other is rejected;
  /// `rows` counts pairs then. 0: rows are plain.
  int64_t rows_at_once = 0;
  bool are_rewarded = false;    // one class is read at each row's last token
  bool learns_prompts = false;  // the prompts of chosen rows are targets, told apart
  bool has_documents = false;   // rows hold several documents, which do not see each other
  bool are_packed = false;      // rows that are judged one by one stand in one, a micro-batch's
  bool forgets = false;         // rows are to be forgotten, an alternate (of 3), and to be kept
  /// What the task does to rows before they are counted; empty: nothing.
  std::function<void(nn::ForwardInputs& rows)> mark = nullptr;
  /// Makes what a model under a plan is compared to; empty, or null: nothing.
  std::function<std::shared_ptr<objective::Reference>(
      ParallelModel& model, const Plan& plan, ParallelGroups& axes)>
      refer = nullptr;
};

struct VerifiedLoss {
  double one = 0, plan = 0;  // nats a token
};

/// The gradient of a parameter, over all steps. Errors are relative to its largest element, or to a
/// thousandth of the model's largest gradient, where that is more (for gradients that are zero but
/// for rounding).
struct VerifiedGradient {
  std::string name;
  double largest = 0;   // on one rank, in the first step
  double error = 0;     // the worst of the steps
  int64_t step = 0;     // when the error was worst, from 1
  int64_t element = 0;  // of the flattened parameter, where it was worst
  double one = 0, plan = 0;
};

struct Verification {
  std::vector<VerifiedLoss> losses;         // a step each
  std::vector<VerifiedGradient> gradients;  // in the order of use
  /// The first thing beyond the tolerance, as a sentence; none where all is within.
  std::optional<std::string> first_difference;
};

/// Trains `options.steps` steps on rank 0 alone and under the plan, from the same weights, on the
/// same random tokens; AdamW's epsilon is at least 1e-5, and Lion's rate a hundredth, so that
/// rounding is not blown up from step to step. Every rank must call; blocks. Rank 0 holds the whole
/// model besides its part. The result is whole on rank 0; on the others it has `first_difference`
/// alone.
Verification verify(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes, const VerifyOptions& options);

}  // namespace lockstep::parallel
