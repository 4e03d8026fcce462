// What preference tuning compares a model's answers to: the scores of the model as it was, and, for
// KTO, how far it has moved from it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/core/config.h"
#include "data/loader.h"
#include "model/source.h"
#include "nn/forward_context.h"
#include "objective/reference.h"
#include "parallel/parallel_model.h"
#include "train/batches/datasets.h"
#include "train/machine/rank_context.h"
#include "train/weights/model_fingerprint.h"

namespace lockstep::train {

/// Returns a hash of everything that the reference's scores depend on: the tokens of the rows and
/// the model as it computes them (train/weights/model_fingerprint.h). Reads the files.
std::string reference_key(
    const config::Config& config,
    const model::ModelSource& source,
    WithAdapter adapter,
    std::span<const std::shared_ptr<const data::SequenceView>> rows);

/// The scores of a model's answers before training, each computed once: under the same plan, spread
/// over the data-parallel ranks, without a second model. Kept in a file of the folder of token
/// files, by `key`; a file that is there whole is read instead. Every rank must call, before the
/// model is trained or restored.
std::unique_ptr<objective::StoredScores> score_reference(
    parallel::ParallelModel& model,
    std::span<const std::shared_ptr<const data::SequenceView>> rows,
    int64_t batch_size,
    const std::filesystem::path& folder,
    const std::string& key,
    RankContext& rank_context);

/// Sets of rows and, for KTO, the same prompts with other prompts' answers (data::mismatched), row
/// by row; null where there are none.
struct AnswerSets {
  Datasets rows, mismatched;

  /// All sets that there are.
  std::vector<std::shared_ptr<const data::SequenceView>> all() const;
  /// That belongs to one of `rows`; null: none does.
  const data::SequenceView* mismatched_of(const data::SequenceView& set) const;
};

/// Gives micro-batches the reference's scores and KTO's baseline: the mean over mismatched rows of
/// what the model gained on the reference, at least 0 (Ethayarajh et al., 2024, section 4.1).
class AnswerReference {
 public:
  /// `model` and `sets` must outlive it. `scores` null: the objective reads none.
  AnswerReference(
      parallel::ParallelModel& model,
      const AnswerSets& sets,
      std::unique_ptr<objective::StoredScores> scores,
      c10::Device device)
      : model_(model),
        sets_(sets),
        scores_(std::move(scores)),
        device_(device) {}

  /// Of a training step's micro-batches, on the CPU: the baseline is of the step's rows, those of
  /// all data-parallel ranks. Every rank must call, with as many.
  void refer_step(std::span<nn::ForwardInputs> inputs, std::span<const data::MicroBatch> batches);
  /// Of one batch of `set`, whose baseline is its own.
  void refer_batch(
      nn::ForwardInputs& inputs, const data::MicroBatch& batch, const data::SequenceView& set);

 private:
  /// float64 [2]: the sum of what mismatched rows gained, and how many these are.
  at::Tensor gains(std::span<const data::MicroBatch> batches, const data::SequenceView& rows);

  parallel::ParallelModel& model_;
  const AnswerSets& sets_;
  std::unique_ptr<objective::StoredScores> scores_;
  c10::Device device_;
};

}  // namespace lockstep::train
