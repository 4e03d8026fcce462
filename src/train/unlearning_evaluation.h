// Evaluates unlearning, in `lockstep eval` and during training.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/core/config.h"
#include "model/source.h"
#include "parallel/ranks/parallel_groups.h"
#include "text/tokenizer.h"
#include "train/evaluate.h"
#include "train/job.h"
#include "train/machine/rank_context.h"
#include "train/weights/adapters.h"

namespace lockstep::train {

/// A model folder and an optional adapter.
struct SavedModel {
  model::ModelSource source;
  std::optional<AdapterRequest> adapter;
};

struct Measured {
  std::vector<std::pair<std::string, double>>
      summary;      // metrics of unlearning.metrics that have a number
  double loss = 0;  // mean of -log p per answer token, over the forget set's rows
  int64_t rows = 0;
  std::vector<std::string> warnings;
};

/// Loads the model and computes unlearning.metrics. The model is whole on each data-parallel rank,
/// or split by tensor parallelism; `axes` may only have these two kinds of ranks. Calls `tell` with
/// progress on rank 0. Writes TOFU_EVAL.json and TOFU_SUMMARY.json to `folder` after every metric.
/// Throws Error (kConfig, kData) like UnlearningSuite and read_unlearning_results. Must be called
/// on every rank.
Measured measure_unlearning(
    const config::Config& config,
    const SavedModel& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const std::filesystem::path& folder,
    parallel::ParallelGroups& axes,
    RankContext& rank_context,
    const std::function<void(const std::string& metric, const nlohmann::json& value)>& tell,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

/// Returns true if the run evaluates during training, according to training.eval_strategy,
/// eval_on_start and do_eval.
bool measures_unlearning(const config::Config& config);
/// Reads all required files and throws like UnlearningSuite if any is missing.
void check_measuring(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer);
/// Evaluates the current model of a run, for any parallel plan. Writes the model to a temporary
/// folder, loads it on all ranks, and removes the folder. Writes the results to
/// output_dir/evals/checkpoint-STEP/, and plots to output_dir/unlearning_path.svg and
/// truth_ratios.svg. Must be called on every rank.
Evaluation measure_run(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
