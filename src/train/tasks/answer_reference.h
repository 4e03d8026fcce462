// Reference scores for preference tuning: the scores of the initial model and, for KTO, the
// baseline.
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

/// Returns a hash of everything that affects the reference scores: the tokens of the rows and the
/// model (train/weights/model_fingerprint.h). Reads the files.
std::string reference_key(
    const config::Config& config,
    const model::ModelSource& source,
    WithAdapter adapter,
    std::span<const std::shared_ptr<const data::SequenceView>> rows);

/// Computes the scores of all answers under the initial model. Uses the model that is to be
/// trained, with its parallel plan, so that no second model is needed. Answers are distributed over
/// the data-parallel ranks. Scores are cached in a file named by `key` in the folder of the token
/// files; a complete file is read instead. Must be called before the model is trained or restored,
/// on every rank.
std::unique_ptr<objective::StoredScores> score_reference(
    parallel::ParallelModel& model,
    std::span<const std::shared_ptr<const data::SequenceView>> rows,
    int64_t batch_size,
    const std::filesystem::path& folder,
    const std::string& key,
    RankContext& rank_context);

/// Rows of a run. For KTO, `mismatched` has the same prompts paired with answers to other prompts
/// (data::mismatched), row by row. Sets that do not exist are null.
struct AnswerSets {
  Datasets rows, mismatched;

  /// Returns all existing sets.
  std::vector<std::shared_ptr<const data::SequenceView>> all() const;
  /// Returns the mismatched rows of a set in `rows`, or null if there are none.
  const data::SequenceView* mismatched_of(const data::SequenceView& set) const;
};

/// Adds the reference scores and KTO's baseline to micro-batches. The baseline is the model's mean
/// gain over the reference on mismatched rows, but at least 0 (Ethayarajh et al., 2024, section
/// 4.1).
class AnswerReference {
 public:
  /// `model` and `sets` must outlive the object. `scores` is null if the objective has no
  /// reference.
  AnswerReference(
      parallel::ParallelModel& model,
      const AnswerSets& sets,
      std::unique_ptr<objective::StoredScores> scores,
      c10::Device device)
      : model_(model),
        sets_(sets),
        scores_(std::move(scores)),
        device_(device) {}

  /// Adds the scores to the micro-batches of a training step, which must be on the CPU. The
  /// baseline covers the step's rows on all data-parallel ranks. Must be called on every rank, with
  /// the same number of micro-batches.
  void refer_step(std::span<nn::ForwardInputs> inputs, std::span<const data::MicroBatch> batches);
  /// Adds the scores to one batch of `set`, with a baseline of its own.
  void refer_batch(
      nn::ForwardInputs& inputs, const data::MicroBatch& batch, const data::SequenceView& set);

 private:
  /// Returns float64 [2]: the sum of the gains on mismatched rows and the number of these rows.
  at::Tensor gains(std::span<const data::MicroBatch> batches, const data::SequenceView& rows);

  parallel::ParallelModel& model_;
  const AnswerSets& sets_;
  std::unique_ptr<objective::StoredScores> scores_;
  c10::Device device_;
};

}  // namespace lockstep::train
