// Unlearning evaluation of a saved model, by `lockstep eval` and during training.
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
      summary;      // metrics of unlearning.metrics that are numbers
  double loss = 0;  // mean over the forget set's rows of -log p per answer token
  int64_t rows = 0;
  std::vector<std::string> warnings;
};

/// Loads the model, whole on each data-parallel rank or split by tensor parallelism, and computes
/// unlearning.metrics. Calls `tell` with each metric on rank 0, and `progress` on every rank
/// between batches. Writes TOFU_EVAL.json and TOFU_SUMMARY.json to `folder` after every metric.
/// `axes` may only have data and tensor ranks. Throws Error (kConfig, kData) like UnlearningSuite
/// and read_unlearning_results. Every rank must call.
Measured measure_unlearning(
    const config::Config& config,
    const SavedModel& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const std::filesystem::path& folder,
    parallel::ParallelGroups& axes,
    RankContext& rank_context,
    const std::function<void(const std::string& metric, const nlohmann::json& value)>& tell,
    const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

/// Returns true if the run evaluates during training: training.eval_strategy, eval_on_start or
/// do_eval.
bool measures_unlearning(const config::Config& config);
/// Checks that all required files exist. Reads the files. Throws like UnlearningSuite.
void check_measuring(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer);
/// Evaluates the current model of a run under any plan. Writes the model to a temporary folder,
/// loads it on all ranks, and removes the folder. Results are written to
/// output_dir/evals/checkpoint-STEP/, plots to output_dir/unlearning_path.svg and truth_ratios.svg.
/// Every rank must call.
Evaluation measure_run(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
