// Rules for TrainingArguments and script arguments that are not configuration fields.
#include "config/core/trainer_keys.h"

#include <algorithm>

#include "base/format.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/core/script_data.h"
#include "config/core/trl_keys.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;
using enum KeyRule::Takes;

constexpr std::string_view kNoHub =
    "nothing is pushed to the Hub; upload output_dir with `hf upload`";
constexpr std::string_view kNoPython =
    "only used by PyTorch's compiler; there is no Python code to compile";
constexpr std::string_view kNoTpu = "TPUs are not supported";
constexpr std::string_view kOneLoader =
    "the data loader is one thread that reads memory-mapped files";
constexpr std::string_view kOwnKernels = "Lockstep always uses its own fused kernels";
constexpr std::string_view kStreaming = "evaluation accumulates sums and keeps no predictions";
constexpr std::string_view kNoDownload =
    "nothing is downloaded from the Hub; use files: data.train, data.validation, data.test";

/// Reads warmup_ratio, which applies if warmup_steps is 0, as in transformers.
void read_warmup_ratio(const RuleTarget& target, const std::string& name, const Value& value) {
  const auto ratio = value.is_scalar() ? to_double(value.text) : std::nullopt;
  if (!ratio || *ratio < 0 || *ratio >= 1) {
    if (!value.is_null()) {
      target.refuse(
          name,
          value,
          "must be a fraction from 0 to below 1",
          "training.warmup_steps accepts a number of steps, or a fraction between 0 and 1");
    }
    return;
  }
  const Value* const steps = target.settings.find(Path{"training", "warmup_steps"});
  const auto given = steps != nullptr && steps->is_scalar() ? to_double(steps->text) : std::nullopt;
  if (*ratio > 0 && given.value_or(0) == 0) {
    target.set("training.warmup_steps", value.text, value);
  }
}

/// Reads validation_split_percentage of run_clm.py: the percentage of training documents held out
/// if there is no validation split.
void read_validation_percentage(
    const RuleTarget& target, const std::string& name, const Value& value) {
  const auto percent = value.is_scalar() ? to_double(value.text) : std::nullopt;
  if (percent && *percent >= 0 && *percent < 100) {
    target.set("data.validation_fraction", fmt::format("{:g}", *percent / 100), value);
  } else if (!value.is_null()) {
    target.refuse(name, value, "must be a percentage from 0 to below 100");
  }
}

// Alphabetical within each group.
constexpr KeyRule kTrainerRules[] = {
    // Older names, mapped to current keys.
    {"adafactor", kRead, "", "training.optim=adafactor", kSwitch},
    {"do_regression", kRead, "", "task.problem_type=regression", kSwitch},
    {"group_by_length", kRead, "", "training.train_sampling_strategy=group_by_length", kSwitch},
    read_by("task_name", read_glue_task),  // before the next keys: it selects the dataset
    read_by("label_column_name", read_label_column),
    read_by("max_eval_samples", read_most_samples),
    read_by("max_predict_samples", read_most_samples),
    read_by("max_train_samples", read_most_samples),
    read_by("text_column_names", read_text_columns),
    read_by("validation_split_percentage", read_validation_percentage),
    read_by("warmup_ratio", read_warmup_ratio),

    // Read by config/compat/accelerate.cpp and config/compat/deepspeed.cpp.
    {"accelerator_config", kRead},
    {"deepspeed", kRead},
    {"fsdp", kRead},
    {"fsdp_config", kRead},
    {"parallelism_config", kRead},

    // Accepted: they do not change results.
    {"batch_eval_metrics", kIgnored, "false", kStreaming, kSwitch},
    {"dataloader_in_order", kIgnored, "true", "batches are always in order", kSwitch},
    {"dataloader_multiprocessing_context", kIgnored, "", kOneLoader},
    {"dataloader_persistent_workers", kIgnored, "false", kOneLoader, kSwitch},
    {"dataloader_pin_memory", kIgnored, "true", "batches are pinned if a GPU is used", kSwitch},
    {"ddp_broadcast_buffers", kIgnored, "false", "the models have no buffers", kSwitch},
    {"ddp_static_graph", kIgnored, "false", "the graph is always static", kSwitch},
    {"debug",
     kIgnored,
     "|[]",
     "training always stops at NaN or Inf and reports the parameter",
     kList},
    {"do_train", kIgnored, "true", "`lockstep train` trains; `lockstep eval` evaluates", kSwitch},
    {"enable_jit_checkpoint",
     kIgnored,
     "true|false",
     "a checkpoint is always saved on SIGTERM",
     kSwitch},
    {"eval_accumulation_steps", kIgnored, "", kStreaming},
    {"eval_do_concat_batches", kIgnored, "true", kStreaming, kSwitch},
    {"eval_use_gather_object", kIgnored, "false", kStreaming, kSwitch},
    {"fp16_backend", kIgnored, "auto", "there is one float16 implementation"},
    {"fp16_opt_level", kIgnored, "O1", "only used by NVIDIA Apex"},
    {"fsdp_min_num_params", kIgnored, "0", "units are always the model's blocks"},
    {"fsdp_transformer_layer_cls_to_wrap", kIgnored, "", "units are always the model's blocks"},
    {"gradient_checkpointing_kwargs", kIgnored, "{}", "recomputation has no options"},
    {"half_precision_backend", kIgnored, "auto", "there is one implementation"},
    {"hub_always_push", kIgnored, "false", kNoHub, kSwitch},
    {"hub_model_id", kIgnored, "", kNoHub},
    {"hub_private_repo", kIgnored, "false", kNoHub, kSwitch},
    {"hub_revision", kIgnored, "", kNoHub},
    {"hub_strategy", kIgnored, "every_save", kNoHub},
    {"hub_token", kIgnored, "", kNoHub},
    {"include_for_metrics", kIgnored, "[]", kStreaming, kList},
    {"include_inputs_for_metrics", kIgnored, "false", kStreaming, kSwitch},
    {"include_num_input_tokens_seen",
     kIgnored,
     "no|false",
     "tokens are always counted in metrics.jsonl"},
    {"include_tokens_per_second",
     kIgnored,
     "true|false",
     "tokens per second are always logged",
     kSwitch},
    {"jit_mode_eval", kIgnored, "false", kNoPython, kSwitch},
    {"label_names", kIgnored, "|[]|[labels]", "labels are derived from the text", kList},
    {"length_column_name", kIgnored, "length", "lengths are computed from the tokenized data"},
    {"liger_kernel_config", kIgnored, "{}", kOwnKernels},
    {"local_rank", kIgnored, "*"},
    {"log_on_each_node", kIgnored, "true|false", "only rank 0 writes metrics", kSwitch},
    {"logging_nan_inf_filter",
     kIgnored,
     "true|false",
     "the run stops at NaN or Inf and reports the parameter",
     kSwitch},
    {"mp_parameters", kIgnored, "", "only used on Amazon SageMaker"},
    {"prediction_loss_only", kIgnored, "true|false", kStreaming, kSwitch},
    {"push_to_hub_model_id", kIgnored, "", kNoHub},
    {"push_to_hub_organization", kIgnored, "", kNoHub},
    {"push_to_hub_token", kIgnored, "", kNoHub},
    {"ray_scope", kIgnored, "last", "hyperparameter search is not supported"},
    {"remove_unused_columns", kIgnored, "true|false", "only the used fields are read", kSwitch},
    {"restore_callback_states_from_checkpoint",
     kIgnored,
     "true",
     "the whole state is always restored",
     kSwitch},
    {"save_on_each_node",
     kIgnored,
     "false",
     "all ranks write their shards to one folder shared by all nodes",
     kSwitch},
    {"skip_memory_metrics", kIgnored, "true|false", "peak memory is always logged", kSwitch},
    {"torch_compile", kIgnored, "false", kNoPython, kSwitch},
    {"torch_compile_backend", kIgnored, "", kNoPython},
    {"torch_compile_mode", kIgnored, "", kNoPython},
    {"torch_empty_cache_steps", kIgnored, "", "the allocator's cache is kept between steps"},
    {"torchdynamo", kIgnored, "", kNoPython},
    {"tpu_metrics_debug", kIgnored, "false", kNoTpu, kSwitch},
    {"trackio_bucket_id", kIgnored, "", "Trackio is not supported"},
    {"trackio_space_id", kIgnored, "trackio", "Trackio is not supported"},
    {"trackio_static_space_id", kIgnored, "", "Trackio is not supported"},
    {"use_cache", kIgnored, "false", "training uses no key-value cache", kSwitch},
    {"use_ipex", kIgnored, "false", kOwnKernels, kSwitch},
    {"use_legacy_prediction_loop", kIgnored, "false", "there is one evaluation loop", kSwitch},
    {"use_liger_kernel", kIgnored, "false", kOwnKernels, kSwitch},

    // Keys of run_classification.py and run_glue.py that do not change results.
    {"ignore_mismatched_sizes",
     kIgnored,
     "true|false",
     "a head with other labels is always initialized randomly and logged",
     kSwitch},
    {"metric_name",
     kIgnored,
     "",
     "every metric of the problem type is reported; training.metric_for_best_model selects one"},
    {"model_revision", kIgnored, "main", kNoDownload},
    {"overwrite_cache",
     kIgnored,
     "false",
     "the names of token files are hashes of their inputs",
     kSwitch},
    {"pad_to_max_length",
     kIgnored,
     "true|false",
     "rows are padded to the longest row of a batch, which does not change results",
     kSwitch},
    {"preprocessing_num_workers", kIgnored, "*", "texts are tokenized on all cores"},
    {"remove_columns", kIgnored, "", "only the used fields are read"},
    {"remove_splits", kIgnored, "", kNoDownload},
    {"shuffle_seed", kIgnored, "42", "the data order is determined by training.data_seed"},
    {"shuffle_train_dataset",
     kIgnored,
     "true|false",
     "rows are shuffled: see training.train_sampling_strategy",
     kSwitch},
    {"token", kIgnored, "", kNoDownload},
    {"trust_remote_code", kIgnored, "false", "code in a model's folder is never run", kSwitch},
    {"use_auth_token", kIgnored, "false", kNoDownload, kSwitch},
    {"use_fast_tokenizer",
     kIgnored,
     "true|false",
     "there is only one tokenizer implementation",
     kSwitch},

    // Refused: they would change results and are not supported.
    {"optim_args",
     kRefused,
     "",
     "use the keys of the optimizer's arguments: adam_beta1, adam_beta2, adam_epsilon, "
     "weight_decay"},
    {"optim_target_modules",
     kRefused,
     "",
     "only used by the GaLore and APOLLO optimizers, which are not supported"},
    {"past_index", kRefused, "-1", "models with state between batches are not supported"},
    {"push_to_hub", kRefused, "false", kNoHub, kSwitch},
    {"save_safetensors",
     kRefused,
     "true",
     "checkpoints are always safetensors, never pickle files",
     kSwitch},
    {"sharded_ddp",
     kRefused,
     "|false|[]",
     "sharded_ddp was part of FairScale; use parallel.zero_stage"},
    {"split_batches",
     kRefused,
     "false",
     "per_device_train_batch_size is the batch size of one rank; divide it yourself",
     kSwitch},
    {"tpu_num_cores", kRefused, "", kNoTpu},
    {"use_mps_device", kRefused, "false", "Apple GPUs are not supported", kSwitch},
    {"xpu_backend", kRefused, "", "use ddp_backend"},
};

struct SectionRename {
  std::string_view section, from, to;
};

constexpr SectionRename kRenames[] = {
    {"checkpoint", "replicas", "in_memory_replicas"},
    {"training", "activation_checkpointing", "gradient_checkpointing"},
    {"training", "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"},
    {"training", "evaluation_strategy", "eval_strategy"},
    {"training", "no_cuda", "use_cpu"},
    {"training", "per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    {"training", "per_gpu_train_batch_size", "per_device_train_batch_size"},
};

struct Rename {
  std::string_view from, to;
};

// Arguments of run_clm.py, run_classification.py and similar scripts.
constexpr Rename kScriptKeys[] = {
    {"block_size", "data.sequence_length"},
    {"cache_dir", "data.cache_dir"},
    {"dataset_config_name", "data.dataset_config_name"},
    {"dataset_name", "data.dataset_name"},
    {"max_seq_length", "data.sequence_length"},
    {"model_name_or_path", "model.path"},
    {"test_file", "data.test"},
    {"test_split_name", "data.test_split"},
    {"text_column_delimiter", "data.text_delimiter"},
    {"text_column_name", "data.text_field"},
    {"tokenizer_name", "tokenizer.path"},
    {"tokenizer_name_or_path", "tokenizer.path"},
    {"train_file", "data.train"},
    {"train_split_name", "data.train_split"},
    {"validation_file", "data.validation"},
    {"validation_split_name", "data.validation_split"},
};

}  // namespace

KeyRules trainer_rules() {
  static const std::vector<KeyRule> kRules = [] {
    std::vector<KeyRule> rules(std::begin(kTrainerRules), std::end(kTrainerRules));
    rules.insert(rules.end(), trl_rules().begin(), trl_rules().end());
    return rules;
  }();
  return kRules;
}

std::string_view current_name(std::string_view section, std::string_view name) {
  for (const SectionRename& rename : kRenames) {
    if (rename.section == section && rename.from == name) {
      return rename.to;
    }
  }
  return name;
}

std::string_view script_key(std::string_view name) {
  for (const Rename& rename : kScriptKeys) {
    if (rename.from == name) {
      return rename.to;
    }
  }
  const auto found = std::ranges::find(trl_keys(), name, &TrlKey::name);
  return found == trl_keys().end() ? std::string_view() : found->key;
}

bool is_training_name(std::string_view name) {
  const std::string_view current = current_name("training", name);
  return find_rule(trainer_rules(), current) != nullptr ||
         find_key("training." + std::string(current)) != nullptr;
}

void apply_trainer_rules(Value& tree, Problems& problems, std::vector<std::string>& warnings) {
  const RuleTarget target{tree, problems, warnings, "training."};
  for (const KeyRule& rule : trainer_rules()) {
    const Value* const training = tree.find("training");
    const Value* const found =
        training != nullptr && training->is_map() ? training->find(rule.name) : nullptr;
    const bool is_for_others =
        rule.kind == KeyRule::Kind::kRead && rule.text.empty() && rule.read == nullptr;
    if (found != nullptr && !is_for_others) {
      const Value value = *found;  // a copy because the rule may move the original
      apply_rule(rule, std::string(rule.name), value, target);
      tree.find("training")->erase(rule.name);
    }
  }
}

}  // namespace lockstep::config
