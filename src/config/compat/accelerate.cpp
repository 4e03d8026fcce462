#include "config/compat/accelerate.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/format.h"
#include "config/compat/answers.h"
#include "config/core/scalar.h"
#include "config/core/settings.h"
#include "config/core/yaml.h"
#include "config/hydra/override.h"

namespace lockstep::config {
namespace {

const Answers& deepspeed_answers() {
  static const Answer kLauncher = nothing();
  static const Answers kAnswers = {
      {"deepspeed_config_file", copies("training.deepspeed")},
      {"zero_stage", copies("parallel.zero_stage")},
      {"gradient_accumulation_steps", copies("training.gradient_accumulation_steps")},
      {"gradient_clipping", copies("training.max_grad_norm")},
      {"offload_optimizer_device", copies("parallel.offload_optimizer.device")},
      {"offload_param_device", copies("parallel.offload_param.device")},
      {"offload_optimizer_nvme_path", copies("parallel.offload_optimizer.path")},
      {"offload_param_nvme_path", copies("parallel.offload_param.path")},
      {"zero3_init_flag", nothing()},         // no rank ever holds the whole model
      {"zero3_save_16bit_model", nothing()},  // a checkpoint always is a whole model folder
      {"deepspeed_moe_layer_cls_names", warns("there are no mixture-of-experts models yet")},
      {"deepspeed_multinode_launcher", kLauncher},
      {"deepspeed_hostfile", kLauncher},
      {"deepspeed_inclusion_filter", kLauncher},
      {"deepspeed_exclusion_filter", kLauncher},
  };
  return kAnswers;
}

const Answers& megatron_answers() {
  static const Answer kModel = warns("read from the model's own config.json");
  static const Answers kAnswers = {
      {"tp_degree", copies("parallel.tensor")},
      {"pp_degree", copies("parallel.pipeline")},
      {"context_parallel_size", copies("parallel.context")},
      {"num_micro_batches", copies("training.gradient_accumulation_steps")},
      {"gradient_clipping", copies("training.max_grad_norm")},
      {"sequence_parallelism", copies("parallel.sequence_parallel")},
      {"recompute_activations", sets_if_true("parallel.recompute", "selective")},
      {"recompute_granularity", copies("parallel.recompute")},
      {"recompute_method", nothing()},
      {"recompute_num_layers", warns("recomputation is of every layer")},
      {"use_distributed_optimizer", sets_if_true("parallel.zero_stage", "1")},
      {"optimizer_cpu_offload", sets_if_true("parallel.offload_optimizer.device", "cpu")},
      {"expert_model_parallel_size", refuses_more_than_one("there are no experts yet")},
      {"expert_tensor_parallel_size", refuses_more_than_one("there are no experts yet")},
      {"decoder_last_pipeline_num_layers", warns("give parallel.split, the layers of each stage")},
      {"attention_dropout", kModel},
      {"hidden_dropout", kModel},
      {"attention_softmax_in_fp32", nothing()},
      {"calculate_per_token_loss", nothing()},  // the loss always is per token
      {"use_rotary_position_embeddings", kModel},
      {"attention_backend", nothing()},
      {"no_load_optim", refuses_true("a resume takes the whole state")},
      {"no_save_optim", copies("training.save_only_model")},
      {"use_precision_aware_optimizer", refuses_true("moments are float32")},
      {"overlap_cpu_optimizer_d2h_h2d", nothing()},
      {"eod_mask_loss", refuses_true("the end-of-text token is a target like others")},
      {"use_custom_fsdp", nothing()},
  };
  return kAnswers;
}

void mixed_precision(const AnswerTarget& target, const std::string& name, const Value& value) {
  const std::string type = lower_case(value.text);
  if (type == "bf16" || type == "fp16") {
    target.set("training." + type, "true", value);
  } else if (type == "fp8") {
    target.refuse(name, value, "8-bit floats are not supported", "use bf16");
  } else if (!value.is_null() && type != "no" && type != "false") {
    target.refuse(name, value, "it is none of no, bf16, fp16, fp8");
  }
}

void distributed_type(const AnswerTarget& target, const std::string& name, const Value& value) {
  static constexpr std::array kKnown = {
      "no", "multi_cpu", "multi_gpu", "deepspeed", "fsdp", "megatron_lm"};
  if (std::find(kKnown.begin(), kKnown.end(), lower_case(value.text)) == kKnown.end()) {
    if (lower_case(value.text) != "false") {  // YAML's NO
      target.refuse(
          name, value, "it is none of NO, MULTI_CPU, MULTI_GPU, DEEPSPEED, FSDP, MEGATRON_LM");
    }
  }
}

std::string upper_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  return text;
}

Answer section(const Answers& answers, const std::string& prefix_of_names) {
  return [&answers, prefix_of_names](
             const AnswerTarget& target, const std::string& name, const Value& value) {
    answer_entries(
        value,
        answers,
        prefix_of_names,
        {target.settings, target.problems, target.warnings, name + "."});
  };
}

const Answers& file_answers() {
  static const Answer kLauncher = nothing();  // `lockstep launch` reads it
  static const Answers kAnswers = {
      {"compute_environment",
       [](const AnswerTarget& target, const std::string& name, const Value& value) {
         if (lower_case(value.text) != "local_machine") {
           target.refuse(name, value, "only LOCAL_MACHINE is supported");
         }
       }},
      {"distributed_type", distributed_type},
      {"mixed_precision", mixed_precision},
      {"fp16", sets_if_true("training.fp16", "true")},
      {"use_cpu", copies("training.use_cpu")},
      {"debug", nothing()},
      {"enable_cpu_affinity", kLauncher},
      {"num_processes", kLauncher},
      {"num_machines", kLauncher},
      {"machine_rank", kLauncher},
      {"gpu_ids", kLauncher},
      {"main_process_ip", kLauncher},
      {"main_process_port", kLauncher},
      {"rdzv_backend", kLauncher},
      {"same_network", kLauncher},
      {"main_training_function", nothing()},
      {"downcast_bf16", nothing()},
      {"command_file", nothing()},
      {"commands", nothing()},
      {"tpu_name", nothing()},
      {"tpu_zone", nothing()},
      {"tpu_env", nothing()},
      {"tpu_use_cluster", refuses_true("there is no TPU support")},
      {"tpu_use_sudo", nothing()},
      {"tpu_vm", nothing()},
      {"deepspeed_config", section(deepspeed_answers(), "")},
      {"fsdp_config", section(fsdp_answers(), "fsdp_")},
      {"megatron_lm_config", section(megatron_answers(), "megatron_lm_")},
      {"parallelism_config",
       [](const AnswerTarget& target, const std::string& name, const Value& value) {
         answer_parallelism(
             value,
             "parallelism_config_",
             {target.settings, target.problems, target.warnings, name + "."});
       }},
      {"fp8_config", nothing()},  // mixed_precision=fp8 is refused
      {"dynamo_backend", warns("there is no Python to compile")},
      {"dynamo_config", nothing()},
      {"mpirun_config", kLauncher},
      {"ipex_config", nothing()},
  };
  return kAnswers;
}

}  // namespace

bool is_accelerate(const Value& tree) {
  return tree.find("compute_environment") != nullptr || tree.find("distributed_type") != nullptr;
}

Value accelerate_settings(
    const Value& file, Problems& problems, std::vector<std::string>& warnings) {
  Value settings = Value::map(file.origin);
  const AnswerTarget target{settings, problems, warnings, ""};
  answer_entries(file, file_answers(), "", target);
  // deepspeed_config is read where distributed_type names it; a leftover of another choice says
  // nothing.
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
  const auto take_section = [&](const char* section, const Answers& answers, const auto& variable) {
    Value& map = file.at_or_add(section) = Value::map();
    for (const auto& [key, answer] : answers) {
      take(map, key, variable(upper_case(key)));
    }
  };
  const auto is_used = [&](const char* what) {
    return to_bool(environment(fmt::format("ACCELERATE_USE_{}", what)).value_or("false"))
        .value_or(false);
  };
  take(file, "mixed_precision", "ACCELERATE_MIXED_PRECISION");
  take(file, "use_cpu", "ACCELERATE_USE_CPU");
  if (is_used("DEEPSPEED")) {
    take_section("deepspeed_config", deepspeed_answers(), [](const std::string& key) {
      const bool general = key.starts_with("GRADIENT_");
      const std::string name = key.starts_with("DEEPSPEED_") ? key.substr(10) : key;
      return (general ? "ACCELERATE_" : "ACCELERATE_DEEPSPEED_") + name;
    });
  }
  if (is_used("FSDP")) {
    take_section(
        "fsdp_config", fsdp_answers(), [](const std::string& key) { return "FSDP_" + key; });
  }
  if (is_used("MEGATRON_LM")) {
    take_section("megatron_lm_config", megatron_answers(), [](const std::string& key) {
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
    problems.add(key, value.origin, "a map, a text of JSON or a file's name is expected");
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

Value fsdp_settings(
    const Value& fsdp,
    const Value& fsdp_config,
    Problems& problems,
    std::vector<std::string>& warnings) {
  Value settings = Value::map();
  const Value config = map_or_file(fsdp_config, "training.fsdp_config", problems);
  const AnswerTarget target{settings, problems, warnings, "training.fsdp_config."};
  std::string words;
  for (const Value& item : fsdp.is_list() ? fsdp.items : std::vector<Value>{fsdp}) {
    words += ' ';
    words += lower_case(item.text);
  }
  bool on = false;
  for (size_t at = 0; at < words.size();) {
    const size_t begin = words.find_first_not_of(' ', at);
    if (begin == std::string::npos) {
      break;
    }
    const size_t end = std::min(words.find(' ', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    at = end;
    const auto truth = to_bool(word);
    if (truth) {
      on |= *truth;
    } else if (word == "auto_wrap") {
      on = true;
    } else if (word == "offload") {
      on = true;
      fsdp_answers().at("offload_params")(target, word, Value::scalar("true", false, fsdp.origin));
    } else {
      on = true;
      Value strategy = Value::scalar(word, false, fsdp.origin);
      answer_sharding_strategy({settings, problems, warnings, "training."}, "fsdp", strategy);
    }
  }
  if (on) {
    answer_entries(config, fsdp_answers(), "fsdp_", target);
    if (settings.find(Path{"parallel", "zero_stage"}) == nullptr) {
      set_key(settings, "parallel.zero_stage", "3", fsdp.origin);
    }
  } else if (!config.entries.empty()) {
    warnings.push_back(fmt::format(
        "training.fsdp_config ({}) does nothing: training.fsdp is not given",
        describe(fsdp_config.origin)));
  }
  return settings;
}

Value parallelism_settings(
    const Value& config, Problems& problems, std::vector<std::string>& warnings) {
  Value settings = Value::map();
  const Value map = map_or_file(config, "training.parallelism_config", problems);
  answer_parallelism(map, "", {settings, problems, warnings, "training.parallelism_config."});
  return settings;
}

void check_accelerator_config(
    const Value& config, Problems& problems, std::vector<std::string>& warnings) {
  static const Answers kAnswers = {
      {"split_batches",
       refuses_true("per_device_train_batch_size is the batch of one rank; divide it yourself")},
      {"dispatch_batches", nothing()},
      {"even_batches", nothing()},
      {"use_seedable_sampler", nothing()},
      {"non_blocking", nothing()},
      {"gradient_accumulation_kwargs", nothing()},
      {"use_configured_state", nothing()},
  };
  Value settings = Value::map();
  const Value map = map_or_file(config, "training.accelerator_config", problems);
  answer_entries(map, kAnswers, "", {settings, problems, warnings, "training.accelerator_config."});
}

}  // namespace lockstep::config
