// Reports configuration keys that are unsupported or have no effect.
#include "config/core/unsupported_keys.h"

#include <algorithm>

#include "base/format.h"
#include "config/core/schema.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

constexpr KeyRule kUnsupportedKeys[] = {
    {"training.auto_find_batch_size",
     kRefused,
     "false",
     "reduce per_device_train_batch_size and increase gradient_accumulation_steps"},
    {"training.fp16_full_eval", kRefused, "false", "evaluation uses the type of training"},
};

Origin origin_of(const Origins& origins, const std::string& key) {
  const auto found = origins.find(key);
  return found == origins.end() ? Origin{} : found->second;
}

}  // namespace

KeyRules unsupported_keys() {
  return kUnsupportedKeys;
}

void check_supported(const Config& config, const Origins& origins, Problems& problems) {
  const Value values = to_value(config);
  for (const KeyRule& rule : kUnsupportedKeys) {
    const std::string key(rule.name);
    const Value* const value = values.find(split_path(key));
    if (!is_harmless(rule, *value)) {
      problems.add(
          key,
          origin_of(origins, key),
          fmt::format("{} is not supported yet", value->text),
          std::string(rule.text));
    }
  }
}

void warn_of_idle_keys(
    const Config& config, const Origins& origins, std::vector<std::string>& warnings) {
  const Value values = to_value(config);
  const auto warn = [&](const char* key, bool idle, const char* reason) {
    // No warning for keys set to their default, as in the config.yaml of a run.
    const bool asked =
        to_text(*values.find(split_path(key))) != to_text(find_key(key)->default_value);
    if (idle && asked && origins.count(key) != 0) {
      warnings.push_back(
          fmt::format("{} ({}) has no effect: {}", key, describe(origins.at(key)), reason));
    }
  };
  const TrainingSection& training = config.training;
  const ParallelSection& parallel = config.parallel;
  const bool no_pipeline = parallel.pipeline == 1;
  warn("parallel.schedule", no_pipeline, "only used with parallel.pipeline");
  warn("parallel.virtual_stages", no_pipeline, "only used with parallel.pipeline");
  warn("parallel.split", no_pipeline, "only used with parallel.pipeline");
  warn(
      "parallel.zero_in_pipeline",
      no_pipeline || parallel.zero_stage < 2,
      "only used with a pipeline and zero_stage=2 or 3");
  warn("parallel.context_attention", parallel.context == 1, "only used with parallel.context");
  warn("parallel.sequence_parallel", parallel.tensor == 1, "only used with parallel.tensor");
  warn("parallel.prefetch_units", parallel.zero_stage < 3, "only used with zero_stage=3");
  warn("parallel.persistence_threshold", parallel.zero_stage < 3, "only used with zero_stage=3");
  warn("parallel.prefetch_elements", parallel.zero_stage < 3, "only used with zero_stage=3");
  warn("parallel.shard_ranks", parallel.zero_stage < 1, "zero_stage=0 shards nothing");
  warn("parallel.zero_in_pipeline", no_pipeline, "only used with parallel.pipeline");
  warn(
      "parallel.offload_optimizer.ratio",
      parallel.offload_optimizer.device == "none",
      "nothing is offloaded");
  for (const char* key : {"fixed", "initial_power", "window", "hysteresis", "minimum"}) {
    const std::string name = std::string("precision.loss_scale.") + key;
    warn(name.c_str(), !training.fp16, "only used with training.fp16=true");
  }
  for (const char* key : {"start", "end"}) {
    const std::string name = fmt::format("precision.num_layers_at_{}_in_bf16", key);
    warn(name.c_str(), config.precision.fp8 == "none", "only used with precision.fp8");
  }
  warn("parallel.recompute_every", parallel.recompute == "none", "nothing is recomputed");
  warn(
      "parallel.offload_optimizer.path",
      parallel.offload_optimizer.device != "nvme",
      "only used with device=nvme");
  warn(
      "parallel.offload_param.path",
      parallel.offload_param.device != "nvme",
      "only used with device=nvme");
  warn(
      "training.early_stopping_threshold",
      !training.early_stopping_patience,
      "only used with training.early_stopping_patience");
  warn(
      "training.warmup_steps",
      training.lr_scheduler_type == "constant" && training.warmup_steps > 0,
      "lr_scheduler_type=constant has no warmup (constant_with_warmup does)");
  warn("training.num_train_epochs", training.max_steps > 0, "max_steps is set and overrides it");
  warn(
      "training.eval_steps",
      training.eval_strategy != "steps" && training.eval_steps.has_value(),
      "eval_strategy is not steps");
  warn(
      "training.bf16_full_eval",
      training.bf16_full_eval && training.bf16,
      "training and evaluation already use bfloat16");
  const auto reports_to = [&](const char* tracker) {
    const auto& chosen = training.report_to;
    return std::find(chosen.begin(), chosen.end(), tracker) != chosen.end() ||
           std::find(chosen.begin(), chosen.end(), "all") != chosen.end();
  };
  warn(
      "training.logging_dir",
      !reports_to("tensorboard"),
      "only used with report_to=tensorboard; metrics.jsonl is in output_dir");
  warn("training.run_name", !reports_to("wandb"), "only used with report_to=wandb");
  warn("training.project", !reports_to("wandb"), "only used with report_to=wandb");
  warn("monitor.wandb_ranks", !reports_to("wandb"), "only used with report_to=wandb");
  warn(
      "training.dataloader_num_workers",
      training.dataloader_num_workers > 1,
      "one thread loads the data, which is already tokenized");
  warn(
      "training.ddp_backend",
      training.ddp_backend == (training.use_cpu ? "nccl" : "gloo"),
      "GPUs communicate through nccl, CPUs through shared memory or gloo");
}

}  // namespace lockstep::config
