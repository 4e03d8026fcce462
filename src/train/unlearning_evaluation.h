// What a model that is to forget still knows, measured from a folder that holds it: by `lockstep
// eval`, and while it is trained.
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

/// A folder, and an adapter beside it if any.
struct SavedModel {
  model::ModelSource source;
  std::optional<AdapterRequest> adapter;
};

struct Measured {
  std::vector<std::pair<std::string, double>> summary;  // unlearning.metrics that have a number
  double loss = 0;  // of the answers to be forgotten: the mean over rows of -log p of a token
  int64_t rows = 0;
  std::vector<std::string> warnings;
};

/// Loads the model, whole on each data rank or cut by tensor parallelism, and measures
/// unlearning.metrics, which `tell` is told of on rank 0. Writes TOFU_EVAL.json and
/// TOFU_SUMMARY.json into `folder` after every metric. `axes` has data and tensor ranks alone.
/// Every rank must call. Error (kConfig, kData) as UnlearningSuite, read_unlearning_results.
Measured measure_unlearning(
    const config::Config& config,
    const SavedModel& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const std::filesystem::path& folder,
    parallel::ParallelGroups& axes,
    RankContext& rank_context,
    const std::function<void(const std::string& metric, const nlohmann::json& value)>& tell);

/// Whether a run is measured while it trains: training.eval_strategy, eval_on_start or do_eval.
bool measures_unlearning(const config::Config& config);
/// Finds out what would be missing. Error as UnlearningSuite. Reads the files.
void check_measuring(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer);
/// Measures what a run has come to, under any plan: the model is written as it would be saved, read
/// again by all ranks, and removed. The files are output_dir/evals/checkpoint-STEP/, and the
/// pictures output_dir/unlearning_path.svg and truth_ratios.svg. Every rank must call.
Evaluation measure_run(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
