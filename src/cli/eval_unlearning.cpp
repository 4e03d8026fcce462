// `lockstep eval` with task.type=unlearning.
#include "cli/eval_unlearning.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/rank_context.h"
#include "train/plan.h"
#include "train/tasks/unlearning_results.h"
#include "train/unlearning_evaluation.h"
#include "train/weights/model_loading.h"

namespace lockstep::cli {
namespace {

std::filesystem::path results_folder(const config::Resolution& resolution) {
  const std::string folder =
      resolution.value("output").value_or(resolution.config.training.output_dir);
  if (folder.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "an output folder is required",
        "give --output FOLDER: TOFU_EVAL.json and TOFU_SUMMARY.json are written there");
  }
  return folder;
}

void check_axes(const mesh::Mesh& mesh) {
  if (mesh.pipeline > 1 || mesh.context > 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "answers are generated under data and tensor parallelism only, not under {}",
            mesh.text()),
        "set parallel.pipeline and parallel.context to 1; parallel.tensor may be larger");
  }
}

}  // namespace

int evaluate_unlearning(const config::Resolution& resolution, train::RankContext& rank_context) {
  const config::Config& config = resolution.config;
  const std::filesystem::path folder = results_folder(resolution);
  const model::ModelSource source = train::find_source(config.model.path, "");
  model::require_weights(source);
  const auto tokenizer = train::load_tokenizer(config.tokenizer.path, source);
  parallel::ParallelGroups axes(
      rank_context.communicator,
      train::mesh_of(config.parallel, rank_context.size()),
      rank_context.group);
  check_axes(axes.mesh());
  const train::Measured measured = train::measure_unlearning(
      config,
      {source, train::saved_adapter(config.lora.adapter)},
      tokenizer,
      folder,
      axes,
      rank_context,
      [](const std::string& metric, const nlohmann::json& value) {
        fmt::print("{:<22} {}\n", metric, value.dump());
      });
  if (rank_context.is_first()) {
    for (const std::string& warning : measured.warnings) {
      log_warning("{}", warning);
    }
    log_info("{}", (folder / train::results_file(config.unlearning)).string());
  }
  return 0;
}

}  // namespace lockstep::cli
