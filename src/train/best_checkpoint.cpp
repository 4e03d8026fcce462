// Records the checkpoint of the best evaluation and loads it at the end of a run.
#include "train/best_checkpoint.h"

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/log.h"
#include "checkpoint/folders.h"
#include "checkpoint/object_store_run.h"
#include "comm/communicator.h"
#include "train/checkpointing.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

/// Returns true if rank 0 sees the folder, so that all ranks take the same decision.
bool is_folder(const fs::path& folder, RankContext& context) {
  std::error_code ignored;
  const bool exists = context.is_first() && fs::is_directory(folder, ignored);
  return !comm::broadcast_string(context.communicator, exists ? "yes" : "").empty();
}

}  // namespace

void write_best(nlohmann::ordered_json& state, const Best& best, const std::string& output_dir) {
  if (best.metric && std::isfinite(*best.metric)) {  // otherwise any later value is better
    state["best"] = {{"metric", *best.metric}, {"step", best.step}};
  }
  if (best.saved && std::isfinite(best.saved->metric)) {
    // A name for a checkpoint of this run, so that its folder can be moved.
    const fs::path& folder = best.saved->checkpoint;
    const bool is_own = folder.parent_path() == fs::path(output_dir);
    state["best_saved"] = {
        {"metric", best.saved->metric},
        {"step", best.saved->step},
        {"checkpoint", (is_own ? folder.filename() : fs::absolute(folder)).string()}};
  }
  if (best.no_better > 0) {
    state["evaluations_no_better"] = best.no_better;
  }
}

Best read_best(const nlohmann::json& state, const fs::path& folder) {
  Best best;
  if (state.contains("best") && !state.at("best").at("metric").is_null()) {
    best.metric = state.at("best").at("metric").get<double>();
    best.step = state.at("best").at("step");
  }
  best.no_better = state.value("evaluations_no_better", int64_t{0});
  const fs::path run = folder.parent_path();
  if (state.contains("best_saved")) {
    const nlohmann::json& saved = state.at("best_saved");
    best.saved = {
        saved.at("metric"), saved.at("step"), run / saved.at("checkpoint").get<std::string>()};
  } else if (best.metric) {  // written by a version that did not record it
    best.saved = {*best.metric, best.step, checkpoint_folder(run, best.step)};
  }
  return best;
}

void check_best_checkpoint(Job& job, RankContext& context) {
  std::optional<SavedEvaluation>& saved = job.best.saved;
  if (!saved || job.stored != nullptr || is_folder(saved->checkpoint, context)) {
    return;
  }
  if (context.is_first() && job.best_rule.is_asked_for()) {
    log_warning(
        "the best checkpoint {} no longer exists and is ignored", saved->checkpoint.string());
  }
  saved.reset();
}

void observe_save(Job& job, const fs::path& folder) {
  if (job.best_rule.observe_save(job.best, job.progress.step, folder) && job.monitor != nullptr &&
      job.best_rule.is_asked_for()) {
    job.monitor->state().best_model_checkpoint = folder.string();
  }
}

void load_best_model(Job& job, RankContext& context) {
  const Best& best = job.best;
  const std::string& metric = job.best_rule.metric();
  const auto warn = [&](const std::string& text) {
    if (context.is_first()) {
      log_warning("{}", text);
    }
  };
  constexpr const char* kLast = "the model of the last step is saved, not the best one";
  if (!best.metric) {
    warn(fmt::format("no evaluation computed {}: {}", metric, kLast));
    return;
  }
  if (!best.saved) {
    warn(fmt::format("no evaluated step has a checkpoint: {}", kLast));
    return;
  }
  fs::path folder = best.saved->checkpoint;
  if (job.stored) {
    folder = job.stored->fetch(best.saved->step, context.communicator).value_or(folder);
  }
  if (!is_folder(folder, context)) {
    warn(fmt::format("the best checkpoint {} no longer exists: {}", folder.string(), kLast));
    return;
  }
  load_weights(job, folder, context);
  if (context.is_first()) {
    log_info(
        "loaded the best model: checkpoint-{} (eval_{} {:.5g})",
        best.saved->step,
        metric,
        best.saved->metric);
  }
  if (best.step != best.saved->step) {
    warn(fmt::format(
        "the evaluation after step {} was better (eval_{} {:.5g}), but it has no checkpoint; set "
        "save_steps to the value of eval_steps, or save_strategy=best",
        best.step,
        metric,
        *best.metric));
  }
}

}  // namespace lockstep::train
