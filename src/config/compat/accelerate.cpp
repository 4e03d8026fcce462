// Reads Accelerate configuration files and variables as configuration keys.
#include "config/compat/accelerate.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/format.h"
#include "config/compat/fsdp.h"
#include "config/core/scalar.h"
#include "config/core/settings.h"
#include "config/core/yaml.h"
#include "config/hydra/override.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

constexpr KeyRule kDeepspeedRules[] = {
    {"deepspeed_config_file", kRead, "", "training.deepspeed"},
    {"zero_stage", kRead, "", "parallel.zero_stage"},
    {"gradient_accumulation_steps", kRead, "", "training.gradient_accumulation_steps"},
    {"gradient_clipping", kRead, "", "training.max_grad_norm"},
    {"offload_optimizer_device", kRead, "", "parallel.offload_optimizer.device"},
    {"offload_param_device", kRead, "", "parallel.offload_param.device"},
    {"offload_optimizer_nvme_path", kRead, "", "parallel.offload_optimizer.path"},
    {"offload_param_nvme_path", kRead, "", "parallel.offload_param.path"},
    {"zero3_init_flag", kIgnored, "*"},         // a rank never holds the whole model
    {"zero3_save_16bit_model", kIgnored, "*"},  // a checkpoint is always a complete model folder
    {"deepspeed_moe_layer_cls_names", kIgnored, "*"},  // units are always the model's blocks
    {"deepspeed_multinode_launcher", kIgnored, "*"},
    {"deepspeed_hostfile", kIgnored, "*"},
    {"deepspeed_inclusion_filter", kIgnored, "*"},
    {"deepspeed_exclusion_filter", kIgnored, "*"},
};

constexpr std::string_view kModel = "read from the model's config.json";
constexpr KeyRule kMegatronRules[] = {
    {"tp_degree", kRead, "", "parallel.tensor"},
    {"pp_degree", kRead, "", "parallel.pipeline"},
    {"context_parallel_size", kRead, "", "parallel.context"},
    {"num_micro_batches", kRead, "", "training.gradient_accumulation_steps"},
    {"gradient_clipping", kRead, "", "training.max_grad_norm"},
    {"sequence_parallelism", kRead, "", "parallel.sequence_parallel"},
    {"recompute_activations", kRead, "", "parallel.recompute=selective"},
    {"recompute_granularity", kRead, "", "parallel.recompute"},
    {"recompute_method", kIgnored, "*"},
    {"recompute_num_layers", kIgnored, "no|false", "every layer is recomputed"},
    {"use_distributed_optimizer", kRead, "", "parallel.zero_stage=1"},
    {"optimizer_cpu_offload", kRead, "", "parallel.offload_optimizer.device=cpu"},
    {"expert_model_parallel_size", kRead, "", "parallel.expert"},
    {"expert_tensor_parallel_size",
     kRefused,
     "1",
     "experts are split according to parallel.tensor"},
    {"decoder_last_pipeline_num_layers",
     kIgnored,
     "no|false",
     "set parallel.split to the layers of each stage"},
    {"attention_dropout", kIgnored, "no|false", kModel},
    {"hidden_dropout", kIgnored, "no|false", kModel},
    {"attention_softmax_in_fp32", kIgnored, "*"},
    {"calculate_per_token_loss", kIgnored, "*"},  // the loss is always per token
    {"use_rotary_position_embeddings", kIgnored, "no|false", kModel},
    {"attention_backend", kIgnored, "*"},
    {"no_load_optim", kRefused, "false", "a resume always restores the whole state"},
    {"no_save_optim", kRead, "", "training.save_only_model"},
    {"use_precision_aware_optimizer", kRefused, "false", "moments are float32"},
    {"overlap_cpu_optimizer_d2h_h2d", kIgnored, "*"},
    {"eod_mask_loss", kRefused, "false", "the EOS token is a target like any other token"},
    {"use_custom_fsdp", kIgnored, "*"},
};

void read_precision(const RuleTarget& target, const std::string& name, const Value& value) {
  const std::string type = lower_case(value.text);
  if (type == "bf16" || type == "fp16") {
    target.set("training." + type, "true", value);
  } else if (type == "fp8") {
    target.set("training.bf16", "true", value);
    target.set("precision.fp8", "tensor", value);
  } else if (!value.is_null() && type != "no" && type != "false") {
    target.refuse(name, value, "must be no, bf16, fp16 or fp8");
  }
}

void check_distributed_type(const RuleTarget& target, const std::string& name, const Value& value) {
  static constexpr std::array kKnown = {
      "no", "multi_cpu", "multi_gpu", "deepspeed", "fsdp", "megatron_lm"};
  if (std::find(kKnown.begin(), kKnown.end(), lower_case(value.text)) == kKnown.end()) {
    if (lower_case(value.text) != "false") {  // NO is false in YAML 1.1
      target.refuse(
          name, value, "must be NO, MULTI_CPU, MULTI_GPU, DEEPSPEED, FSDP or MEGATRON_LM");
    }
  }
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  return text;
}

void read_deepspeed_section(const RuleTarget& target, const std::string& name, const Value& value) {
  apply_rules(kDeepspeedRules, value, "", target.below(name));
}
void read_fsdp_section(const RuleTarget& target, const std::string& name, const Value& value) {
  apply_rules(fsdp_rules(), value, "fsdp_", target.below(name));
}
void read_megatron_section(const RuleTarget& target, const std::string& name, const Value& value) {
  apply_rules(kMegatronRules, value, "megatron_lm_", target.below(name));
}
void read_parallelism_section(
    const RuleTarget& target, const std::string& name, const Value& value) {
  read_parallelism(value, "parallelism_config_", target.below(name));
}

constexpr const char* kScaledAtOnce = "scales are computed from the current values";
constexpr KeyRule kFloat8Rules[] = {
    {"backend", kIgnored, "*"},
    {"format", kRefused, "hybrid", "forward operands are e4m3, gradients e5m2"},
    {"margin", kIgnored, "0", kScaledAtOnce},
    {"interval", kIgnored, "1", kScaledAtOnce},
    {"amax_history_len", kIgnored, "*", kScaledAtOnce},
    {"amax_history_length", kIgnored, "*", kScaledAtOnce},
    {"amax_compute_algo", kIgnored, "*", kScaledAtOnce},
    {"amax_compute_algorithm", kIgnored, "*", kScaledAtOnce},
    {"override_linear_precision",
     kRefused,
     "(false, false, false)|[false, false, false]",
     "all three matrix products use 8 bits"},
    {"use_autocast_during_eval", kIgnored, "*"},
    {"opt_level", kRefused, "o1|o2", "gradients and moments keep their types"},
    {"enable_fsdp_float8_all_gather", kIgnored, "no|false", "weights are gathered in bfloat16"},
    {"pad_inner_dim", kIgnored, "*"},
};

void read_float8_section(const RuleTarget& target, const std::string& name, const Value& value) {
  apply_rules(kFloat8Rules, value, "fp8_", target.below(name));
}

// Keys that only `lockstep launch` uses are ignored.
constexpr KeyRule kFileRules[] = {
    {"compute_environment", kRefused, "local_machine", "only LOCAL_MACHINE is supported"},
    read_by("distributed_type", check_distributed_type),
    read_by("mixed_precision", read_precision),
    {"fp16", kRead, "", "training.fp16=true"},
    {"use_cpu", kRead, "", "training.use_cpu"},
    {"debug", kIgnored, "*"},
    {"enable_cpu_affinity", kIgnored, "*"},
    {"num_processes", kIgnored, "*"},
    {"num_machines", kIgnored, "*"},
    {"machine_rank", kIgnored, "*"},
    {"gpu_ids", kIgnored, "*"},
    {"main_process_ip", kIgnored, "*"},
    {"main_process_port", kIgnored, "*"},
    {"rdzv_backend", kIgnored, "*"},
    {"same_network", kIgnored, "*"},
    {"main_training_function", kIgnored, "*"},
    {"downcast_bf16", kIgnored, "*"},
    {"command_file", kIgnored, "*"},
    {"commands", kIgnored, "*"},
    {"tpu_name", kIgnored, "*"},
    {"tpu_zone", kIgnored, "*"},
    {"tpu_env", kIgnored, "*"},
    {"tpu_use_cluster", kRefused, "false", "TPUs are not supported"},
    {"tpu_use_sudo", kIgnored, "*"},
    {"tpu_vm", kIgnored, "*"},
    read_by("deepspeed_config", read_deepspeed_section),
    read_by("fsdp_config", read_fsdp_section),
    read_by("megatron_lm_config", read_megatron_section),
    read_by("parallelism_config", read_parallelism_section),
    read_by("fp8_config", read_float8_section),
    {"dynamo_backend", kIgnored, "no|false", "there is no Python code to compile"},
    {"dynamo_config", kIgnored, "*"},
    {"mpirun_config", kIgnored, "*"},
    {"ipex_config", kIgnored, "*"},
};

/// Returns the file without the sections of other distributed types, which accelerate does not
/// read.
Value without_leftovers(Value file, const std::string& type, std::vector<std::string>& warnings) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSections{{
      {"deepspeed_config", "DEEPSPEED"},
      {"fsdp_config", "FSDP"},
      {"megatron_lm_config", "MEGATRON_LM"},
  }};
  for (const auto& [section, owner] : kSections) {
    const Value* const found = file.find(section);
    if (found == nullptr || type == owner) {
      continue;
    }
    if (!found->entries.empty()) {
      warnings.push_back(fmt::format(
          "{} ({}) has no effect: distributed_type is {}", section, describe(found->origin), type));
    }
    file.erase(section);
  }
  return file;
}

}  // namespace

bool is_accelerate(const Value& tree) {
  return tree.find("compute_environment") != nullptr || tree.find("distributed_type") != nullptr;
}

Value accelerate_settings(
    const Value& file, Problems& problems, std::vector<std::string>& warnings) {
  Value settings = Value::map(file.origin);
  const RuleTarget target{settings, problems, warnings, ""};
  const Value* const kind = file.find("distributed_type");
  const std::string type = kind == nullptr ? "" : upper_case(kind->text);
  apply_rules(
      kFileRules, type.empty() ? file : without_leftovers(file, type, warnings), "", target);
  // Stages that accelerate's plugins use without a setting.
  const bool has_file = settings.find(Path{"training", "deepspeed"}) != nullptr;
  const bool has_stage = settings.find(Path{"parallel", "zero_stage"}) != nullptr;
  if (!has_stage && (type == "FSDP" || (type == "DEEPSPEED" && !has_file))) {
    target.set("parallel.zero_stage", type == "FSDP" ? "3" : "2", *kind);
  }
  return settings;
}

Value accelerate_settings(
    const std::function<std::optional<std::string>(const std::string&)>& environment,
    Problems& problems,
    std::vector<std::string>& warnings) {
  Value file = Value::map();
  const auto take = [&](Value& map, const std::string& key, const std::string& variable) {
    if (const auto text = environment(variable)) {
      map.at_or_add(key) =
          Value::scalar(*text, false, {.source = Origin::Source::kEnvironment, .place = variable});
    }
  };
  const auto take_section = [&](const char* section, KeyRules rules, const auto& variable) {
    Value& map = file.at_or_add(section) = Value::map();
    for (const KeyRule& rule : rules) {
      const std::string key(rule.name);
      take(map, key, variable(upper_case(key)));
    }
  };
  const auto is_used = [&](const char* what) {
    return to_bool(environment(fmt::format("ACCELERATE_USE_{}", what)).value_or("false"))
        .value_or(false);
  };
  take(file, "mixed_precision", "ACCELERATE_MIXED_PRECISION");
  take(file, "use_cpu", "ACCELERATE_USE_CPU");
  take(file.at_or_add("fp8_config") = Value::map(), "fp8_format", "ACCELERATE_FP8_FORMAT");
  if (is_used("DEEPSPEED")) {
    take_section("deepspeed_config", kDeepspeedRules, [](const std::string& key) {
      const bool general = key.starts_with("GRADIENT_");
      const std::string name = key.starts_with("DEEPSPEED_") ? key.substr(10) : key;
      return (general ? "ACCELERATE_" : "ACCELERATE_DEEPSPEED_") + name;
    });
  }
  if (is_used("FSDP")) {
    take_section("fsdp_config", fsdp_rules(), [](const std::string& key) { return "FSDP_" + key; });
  }
  if (is_used("MEGATRON_LM")) {
    take_section("megatron_lm_config", kMegatronRules, [](const std::string& key) {
      return "MEGATRON_LM_" + key;
    });
  }
  if (is_used("PARALLELISM_CONFIG")) {
    Value& map = file.at_or_add("parallelism_config") = Value::map();
    for (const char* key :
         {"dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size"}) {
      take(map, key, "PARALLELISM_CONFIG_" + upper_case(key));
    }
  }
  return accelerate_settings(file, problems, warnings);
}

Value map_or_file(const Value& value, const std::string& key, Problems& problems) {
  if (value.is_null() || value.is_map() || (value.is_scalar() && value.text.empty())) {
    return value.is_map() ? value : Value::null();
  }
  if (!value.is_scalar()) {
    problems.add(key, value.origin, "must be a map, a JSON string or a file name");
    return Value::null();
  }
  try {
    if (value.text.starts_with('{')) {
      return value.text.find('"') == std::string::npos ? parse_override_value(value.text, key)
                                                       : parse_json_with_comments(value.text, key);
    }
    return read_config_file(value.text);
  } catch (const Error& error) {
    problems.add(key, value.origin, error.message(), error.remedy());
    return Value::null();
  }
}

void check_accelerator_config(
    const Value& config, Problems& problems, std::vector<std::string>& warnings) {
  static constexpr KeyRule kAccumulationRules[] = {
      {"num_steps", kRefused, "1", "set training.gradient_accumulation_steps instead"},
      {"adjust_scheduler", kIgnored, "*"},
      {"sync_with_dataloader", kIgnored, "*"},
      {"sync_each_batch", kIgnored, "*"},
  };
  static constexpr KeyRule kRules[] = {
      {"split_batches",
       kRefused,
       "false",
       "per_device_train_batch_size is the batch size of one rank; divide it yourself"},
      {"dispatch_batches", kIgnored, "*"},
      {"even_batches", kIgnored, "*"},
      {"use_seedable_sampler", kIgnored, "*"},
      {"non_blocking", kIgnored, "*"},
      read_by(
          "gradient_accumulation_kwargs",
          [](const RuleTarget& target, const std::string&, const Value& value) {
            apply_rules(
                kAccumulationRules, value, "", target.below("gradient_accumulation_kwargs"));
          }),
      {"use_configured_state", kIgnored, "*"},
  };
  Value settings = Value::map();
  const Value map = map_or_file(config, "training.accelerator_config", problems);
  apply_rules(kRules, map, "", {settings, problems, warnings, "training.accelerator_config."});
}

}  // namespace lockstep::config
