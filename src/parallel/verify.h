// Verification of a plan against a single rank: losses and every gradient on the same batch.
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
  int64_t rows = 4;     // sequences per step, over data-parallel ranks and micro-batches
  int64_t length = 64;  // tokens per sequence
  uint64_t seed = 42;   // for tokens and dropout
  double tolerance = 1e-4;
  double learning_rate = 1e-3;
  /// For objectives over answers: rows per pair (2), or 1 with every second row rejected; `rows`
  /// then counts pairs. 0: plain rows.
  int64_t rows_at_once = 0;
  bool are_rewarded = false;    // one class per row, read at its last token
  bool learns_prompts = false;  // prompts of chosen rows are targets too, counted separately
  bool has_documents = false;   // rows hold several documents that do not attend to each other
  bool are_packed = false;      // packs a micro-batch's rows into one
  bool forgets = false;         // rows: forget, alternate (if 3 rows), retain
  /// Modifies the task's rows before they are counted; empty: no change.
  std::function<void(nn::ForwardInputs& rows)> mark = nullptr;
  /// Creates the reference of the objective; empty or null: none.
  std::function<std::shared_ptr<objective::Reference>(
      ParallelModel& model, const Plan& plan, ParallelGroups& axes)>
      refer = nullptr;
};

struct VerifiedLoss {
  double one = 0, plan = 0;  // nats per token
};

/// The gradient of a parameter over all steps. Errors are relative to its largest element or to a
/// thousandth of the model's largest gradient, whichever is larger (for gradients that are zero up
/// to rounding).
struct VerifiedGradient {
  std::string name;
  double largest = 0;   // on one rank in the first step
  double error = 0;     // largest over all steps
  int64_t step = 0;     // step of the largest error, from 1
  int64_t element = 0;  // index of the largest error in the flattened parameter
  double one = 0, plan = 0;
};

struct Verification {
  std::vector<VerifiedLoss> losses;         // one per step
  std::vector<VerifiedGradient> gradients;  // in order of use
  /// Describes the first difference beyond the tolerance; nullopt if all are within it.
  std::optional<std::string> first_difference;
};

/// Trains `options.steps` steps on rank 0 alone and under the plan, from the same weights on the
/// same random tokens. AdamW's epsilon is at least 1e-5 and Lion's rate a hundredth, so that
/// rounding does not grow from step to step. Every rank must call; blocks. Rank 0 holds the whole
/// model in addition to its shard. The result is complete on rank 0; other ranks get only
/// `first_difference`.
Verification verify(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes, const VerifyOptions& options);

}  // namespace lockstep::parallel
