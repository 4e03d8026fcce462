// Reference of preference tuning: the scores of the initial model and, for KTO, the baseline.
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

/// Returns a hash of all inputs of the reference scores: the tokens of the rows and the model as it
/// computes (train/weights/model_fingerprint.h). Reads the files.
std::string reference_key(
    const config::Config& config,
    const model::ModelSource& source,
    WithAdapter adapter,
    std::span<const std::shared_ptr<const data::SequenceView>> rows);

/// Computes the scores of all answers under the initial model, once, with the same plan and divided
/// among the data-parallel ranks. Needs no second model. Scores are cached in a file named by `key`
/// in the folder of the token files; a complete file is read instead. Call before the model is
/// trained or restored. Every rank must call.
std::unique_ptr<objective::StoredScores> score_reference(
    parallel::ParallelModel& model,
    std::span<const std::shared_ptr<const data::SequenceView>> rows,
    int64_t batch_size,
    const std::filesystem::path& folder,
    const std::string& key,
    RankContext& rank_context);

/// Sets of rows and, for KTO, the same prompts paired with answers to other prompts
/// (data::mismatched), row by row. Null for sets that do not exist.
struct AnswerSets {
  Datasets rows, mismatched;

  /// Returns all existing sets.
  std::vector<std::shared_ptr<const data::SequenceView>> all() const;
  /// Returns the mismatched rows of a set in `rows`; null if there are none.
  const data::SequenceView* mismatched_of(const data::SequenceView& set) const;
};

/// Adds the reference scores and KTO's baseline to micro-batches. The baseline is the mean gain of
/// the model over the reference on mismatched rows, at least 0 (Ethayarajh et al., 2024, section
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

  /// Processes the micro-batches of a training step, on the CPU. The baseline covers the step's
  /// rows on all data-parallel ranks. Every rank must call with the same number of micro-batches.
  void refer_step(std::span<nn::ForwardInputs> inputs, std::span<const data::MicroBatch> batches);
  /// Processes one batch of `set`, with a separate baseline.
  void refer_batch(
      nn::ForwardInputs& inputs, const data::MicroBatch& batch, const data::SequenceView& set);

 private:
  /// float64 [2]: sum of the gains on mismatched rows, and the number of these rows.
  at::Tensor gains(std::span<const data::MicroBatch> batches, const data::SequenceView& rows);

  parallel::ParallelModel& model_;
  const AnswerSets& sets_;
  std::unique_ptr<objective::StoredScores> scores_;
  c10::Device device_;
};

}  // namespace lockstep::train
