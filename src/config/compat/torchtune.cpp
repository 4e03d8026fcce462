// torchtune's recipe configurations.
#include <algorithm>

#include "base/format.h"
#include "config/compat/foreign.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

/// Returns the last part of a component's dotted name: "lora_llama3_8b".
std::string component_of(const Value& value) {
  return value.text.substr(value.text.rfind('.') + 1);
}

constexpr ForeignWord kTuneDevices[] = {{"cuda", ""}, {"cpu", "training.use_cpu=true"}};
constexpr ForeignWord kTuneTypes[] = {
    {"bf16", "training.bf16=true"}, {"fp16", "training.fp16=true"}, {"fp32", ""}};
constexpr ForeignWord kTuneOptimizers[] = {
    {"torch.optim.adamw", "training.optim=adamw_torch_fused"},
    {"torch.optim.adam", "training.optim=adamw_torch_fused"},
    {"torch.optim.sgd", "training.optim=sgd"},
    {"bitsandbytes.optim.pagedadamw", "training.optim=paged_adamw_32bit"},
    {"bitsandbytes.optim.pagedadamw8bit", "training.optim=paged_adamw_8bit"},
    {"bitsandbytes.optim.adamw8bit", "training.optim=adamw_8bit"},
    {"torchao.optim.adamw8bit", "training.optim=adamw_8bit"},
};
constexpr ForeignWord kTuneSchedules[] = {
    {"torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
     "training.lr_scheduler_type=cosine"},
    {"torchtune.modules.get_cosine_schedule_with_warmup", "training.lr_scheduler_type=cosine"},
};
constexpr ForeignWord kTuneLosses[] = {
    {"torchtune.modules.loss.linearcrossentropyloss", ""},
    {"torchtune.modules.loss.cewithchunkedoutputloss", ""},
    {"torch.nn.crossentropyloss", ""},
    {"torchtune.rlhf.loss.dpoloss", "task.type=preference preference.objective=dpo"},
    {"torchtune.rlhf.loss.rsoloss",
     "task.type=preference preference.objective=dpo preference.loss_type=hinge"},
};
constexpr ForeignWord kTuneLoggers[] = {
    {"torchtune.training.metric_logging.disklogger", ""},
    {"torchtune.training.metric_logging.stdoutlogger", ""},
    {"torchtune.training.metric_logging.wandblogger", "training.report_to=wandb"},
    {"torchtune.training.metric_logging.tensorboardlogger", "training.report_to=tensorboard"},
};

void read_model(const RuleTarget& target, const std::string& name, const Value& value) {
  const std::string component = component_of(value);
  if (component.find("vision") != std::string::npos ||
      component.find("clip") != std::string::npos) {
    target.refuse(name, value, "only text is trained on");
  } else if (component.starts_with("qlora_")) {
    target.set("quantization.bits", "4", value);
  }
}

/// Reads tokenizer.path. Files of a tokenizer are in the model's folder; a folder is Lockstep's.
void read_tokenizer(const RuleTarget& target, const std::string&, const Value& value) {
  const size_t dot = value.text.rfind('.');
  const bool is_file = dot != std::string::npos && value.text.find('/', dot) == std::string::npos;
  if (!is_file) {
    target.copy("tokenizer.path", value);
  }
}

void read_attention_modules(const RuleTarget& target, const std::string&, const Value& value) {
  std::vector<std::string> words = words_in(value);
  std::ranges::replace(words, "output_proj", "o_proj");
  set_list(target, "lora.target_modules", words, value);
}

void read_dataset(const RuleTarget& target, const std::string& name, const Value& value) {
  struct Set {
    std::string_view component, source, prompt;
  };
  static constexpr Set kTuneSets[] = {
      {"alpaca_dataset", "tatsu-lab/alpaca", "alpaca"},
      {"alpaca_cleaned_dataset", "yahma/alpaca-cleaned", "alpaca"},
      {"chat_dataset", "", "chat"},
      {"instruct_dataset", "", "alpaca"},
      {"text_completion_dataset", "", "none"},
      {"preference_dataset", "", ""},
  };
  const std::string component = component_of(value);
  const auto* const found = std::ranges::find(kTuneSets, component, &Set::component);
  if (found == std::end(kTuneSets)) {
    target.refuse(
        name, value, "not known", "set data.train=FILE, or data.dataset_name and data.prompt");
    return;
  }
  if (!found->source.empty()) {
    target.set("data.dataset_name", std::string(found->source), value);
  }
  if (!found->prompt.empty()) {
    target.set("data.prompt", std::string(found->prompt), value);
  }
}

void read_packed(const RuleTarget& target, const std::string&, const Value& value) {
  target.set("data.packing", is_on(value) ? "documents" : "none", value);
}

void read_tune_source(const RuleTarget& target, const std::string&, const Value& value) {
  if (!names_data_file(value.text)) {
    target.copy("data.dataset_name", value);
  } else if (value.text != "json" && value.text != "csv" && value.text != "text") {
    set_list(target, "data.train", {value.text}, value);
  }
}

void read_files(const RuleTarget& target, const std::string&, const Value& value) {
  set_list(target, "data.train", words_in(value), value);
  if (Value* section = target.settings.find("data")) {
    section->erase("dataset_name");  // "json" is a format and not a name
  }
}

void read_offload_all(const RuleTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    target.set("parallel.zero_stage", "3", value);
    target.set("parallel.offload_param.device", "cpu", value);
    target.set("parallel.offload_optimizer.device", "cpu", value);
  }
}

void read_reshard(const RuleTarget& target, const std::string&, const Value& value) {
  target.set("parallel.zero_stage", is_on(value) ? "3" : "2", value);
}

constexpr std::string_view kTuneFolder = "read from the model's folder";
constexpr std::string_view kTuneMethod = "this recipe is not supported";
constexpr std::string_view kTuneVision = "only text is trained on";
constexpr std::string_view kTuneGeneration =
    "used by recipes other than training: see lockstep generate and eval";

constexpr KeyRule kTuneRules[] = {
    {"checkpointer.checkpoint_dir", kRead, "", "model.path"},
    {"tokenizer.max_seq_len", kRead, "", "data.sequence_length"},
    {"batch_size", kRead, "", "training.per_device_train_batch_size"},
    {"batch_size_val", kRead, "", "training.per_device_eval_batch_size"},
    {"epochs", kRead, "", "training.num_train_epochs"},
    {"log_every_n_steps", kRead, "", "training.logging_steps"},
    {"clip_grad_norm", kRead, "", "training.max_grad_norm"},
    {"enable_activation_checkpointing", kRead, "", "training.gradient_checkpointing"},
    {"optimizer.lr", kRead, "", "training.learning_rate"},
    {"optimizer.weight_decay", kRead, "", "training.weight_decay"},
    {"optimizer.eps", kRead, "", "training.adam_epsilon"},
    {"lr_scheduler.num_warmup_steps", kRead, "", "training.warmup_steps"},
    {"loss.beta", kRead, "", "preference.beta"},
    {"loss.label_smoothing", kRead, "", "preference.label_smoothing"},
    {"model.lora_rank", kRead, "", "lora.r"},
    {"model.lora_alpha", kRead, "", "lora.lora_alpha"},
    {"model.lora_dropout", kRead, "", "lora.lora_dropout"},
    {"model.use_dora", kRead, "", "lora.use_dora"},
    {"model.quantize_base", kRead, "", "quantization.bits=4"},
    {"metric_logger.project", kRead, "", "training.project"},
    {"log_peak_memory_stats", kRead, "", "monitor.log_memory"},
    {"tensor_parallel_dim", kRead, "", "parallel.tensor"},
    {"dataset.split", kRead, "", "data.train_split"},
    {"dataset.subset", kRead, "", "data.dataset_config_name"},
    {"dataset.train_on_input", kRead, "", "data.chat_loss=all"},
    {"dataset_val.split", kRead, "", "data.validation_split"},
    read_as(
        "dataset._component_", "data.prompt; alpaca data sets: data.dataset_name", read_dataset),
    read_as("dataset.source", "data.dataset_name or data.train", read_tune_source),
    read_as("dataset.data_files", "data.train", read_files),
    read_as("dataset.packed", "data.packing=documents; false: none", read_packed),
    read_as("device", "cpu: training.use_cpu", read_word<kTuneDevices>),
    read_as("dtype", "training.bf16, training.fp16", read_word<kTuneTypes>),
    read_as(
        "fsdp_cpu_offload", "parallel.offload_param, parallel.offload_optimizer", read_offload_all),
    read_as("fsdp_reshard_after_forward", "parallel.zero_stage=3; false: 2", read_reshard),
    read_as("loss._component_", "DPOLoss, RSOLoss: task.type=preference", read_word<kTuneLosses>),
    read_as(
        "lr_scheduler._component_", "training.lr_scheduler_type=cosine", read_word<kTuneSchedules>),
    read_as("metric_logger._component_", "training.report_to", read_word<kTuneLoggers>),
    read_as("model._component_", "lora_*: section lora; qlora_*: quantization.bits=4", read_model),
    read_as("model.lora_attn_modules", "lora.target_modules", read_attention_modules),
    read_as("optimizer._component_", "training.optim", read_word<kTuneOptimizers>),
    read_as("tokenizer.path", "tokenizer.path if it is a folder", read_tokenizer),
    finished("model.apply_lora_to_mlp", "lora.target_modules"),
    finished("model.apply_lora_to_output", "lora.target_modules"),
    finished("max_steps_per_epoch", "training.max_steps"),
    finished("run_val_every_n_steps", "training.eval_strategy, training.eval_steps"),

    {"checkpointer.*", kIgnored, "", kTuneFolder},
    {"ref_checkpointer.*", kIgnored, "", "the reference is the initial model"},
    {"tokenizer._component_", kIgnored, "", kTuneFolder},
    {"tokenizer.merges_file", kIgnored, "", kTuneFolder},
    {"tokenizer.merges_path", kIgnored, "", kTuneFolder},
    {"tokenizer.vocab_path", kIgnored, "", kTuneFolder},
    {"base_model_path", kIgnored, "", kTuneFolder},
    {"custom_sharded_layers", kIgnored, "", "all parameters are sharded"},
    {"fsdp.cpu_offload", kRefused, "false", "set fsdp_cpu_offload"},
    {"low_cpu_ram", kIgnored, "", "weights are read as memory-mapped files"},
    {"compile", kIgnored, "", "there is no Python code to compile"},
    {"use_flex", kIgnored, "", "Lockstep chooses the attention kernel"},
    {"optimizer.fused", kIgnored, "", "updates are always fused"},
    {"optimizer_in_bwd", kIgnored, "", "saves memory only; set parallel.zero_stage"},
    {"save_adapter_weights_only", kIgnored, "", "an adapter is saved alone"},
    {"use_distributed_state_dict", kIgnored, "", "a checkpoint is always one model folder"},
    {"keep_last_n_checkpoints", kRead, "", "training.save_total_limit"},
    {"log_level", kIgnored, "", "use --log_level debug"},
    {"metric_logger.*", kIgnored, "", "metrics are written to output_dir"},
    {"profiler.*", kIgnored, "", "use --trace FILE"},
    {"dataset_val.*", kIgnored, "", "validation rows have the form of the training rows"},
    {"data_parallel_*", kIgnored, "", "data parallelism uses the ranks that are left"},
    {"tensor_parallel_plan.*", kIgnored, "", "the split of every layer is known"},
    {"name", kIgnored, "", "used by other values of the file"},
    {"collate_fn", kRefused, "", kTuneVision},

    {"save_every_n_epochs", kRefused, "1", "set save_strategy=steps and save_steps"},
    {"shuffle", kRefused, "true", "set train_sampling_strategy=sequential"},
    {"enable_activation_offloading",
     kRefused,
     "false",
     "activations are not offloaded; set enable_activation_checkpointing=true"},
    {"ac_mode", kRefused, "none", "set parallel.recompute"},
    {"ac_option", kRefused, "", "set parallel.recompute_every"},
    {"memory_efficient_fsdp_wrap", kIgnored, "", "all parameters are sharded"},
    {"dataset.column", kRead, "", "data.text_field"},
    {"dataset.*", kRefused, "", "set data keys instead"},
    {"datasets", kRefused, "", "set data.mixture"},
    {"dataloader*", kRefused, "", "set data keys instead"},
    {"tokenizer.prompt_template", kRefused, "", "set data.chat_template=FILE"},
    {"tokenizer.*", kRefused, "", kTuneVision},
    {"model.*", kRefused, "", "the model is that of checkpoint_dir"},
    {"loss.*", kRefused, "", kTuneMethod},
    {"optimizer.*", kRefused, "", "not supported"},
    {"lr_scheduler.*", kRefused, "", "set lr_scheduler_kwargs"},
    {"enable_kv_cache", kRefused, "", kTuneGeneration},
    {"max_new_tokens", kRefused, "", kTuneGeneration},
    {"max_generated_tokens", kRefused, "", kTuneGeneration},
    {"max_seq_length", kRefused, "", kTuneGeneration},
    {"temperature", kRefused, "", kTuneGeneration},
    {"top_k", kRefused, "", kTuneGeneration},
    {"prompt*", kRefused, "", kTuneGeneration},
    {"tasks", kRefused, "", kTuneGeneration},
    {"limit", kRefused, "", kTuneGeneration},
    {"quantizer*", kRefused, "", kTuneGeneration},
    {"teacher_*", kRefused, "", kTuneMethod},
    {"kd_*", kRefused, "", kTuneMethod},
    {"policy_*", kRefused, "", kTuneMethod},
    {"ref_policy_*", kRefused, "", kTuneMethod},
    {"reward_*", kRefused, "", kTuneMethod},
    {"value_*", kRefused, "", kTuneMethod},
    {"ppo_*", kRefused, "", kTuneMethod},
    {"grpo_*", kRefused, "", kTuneMethod},
    {"orchestration*", kRefused, "", kTuneMethod},
    {"inference*", kRefused, "", kTuneMethod},
    {"postprocessing*", kRefused, "", kTuneMethod},
};

void finish_adapter(const Value& file, const RuleTarget& target) {
  const Value* model = file.find("model");
  Value* modules = target.settings.find(Path{"lora", "target_modules"});
  if (model == nullptr || modules == nullptr) {
    return;
  }
  std::vector<std::string> words = words_in(*modules);
  const auto is_set = [&](const char* name) {
    const Value* found = model->find(name);
    return found != nullptr && is_on(*found);
  };
  if (is_set("apply_lora_to_mlp")) {
    words.insert(words.end(), {"gate_proj", "up_proj", "down_proj"});
  }
  if (is_set("apply_lora_to_output")) {
    words.emplace_back("lm_head");
  }
  set_list(target, "lora.target_modules", words, *model);
}

void finish_torchtune(const Value& file, const RuleTarget& target) {
  finish_adapter(file, target);
  const auto steps = to_integer(text_in(file, {"max_steps_per_epoch"}));
  if (steps) {
    const int64_t epochs = to_integer(text_in(file, {"epochs"})).value_or(1);
    target.set("training.max_steps", std::to_string(*steps * epochs), file);
  }
  if (const std::string every = text_in(file, {"run_val_every_n_steps"}); !every.empty()) {
    target.set("training.eval_strategy", "steps", file);
    target.set("training.eval_steps", every, file);
  } else if (Value* section = target.settings.find("data")) {
    section->erase("validation_split");  // no validation during training
  }
}

constexpr ForeignPair kTuneDefaults[] = {
    {"training.lr_scheduler_type", "constant"},
    {"training.weight_decay", "0.01"},
    {"training.max_grad_norm", "0"},
    {"training.save_strategy", "epoch"},
    {"data.packing", "none"},
};

std::span<const ForeignPair> torchtune_defaults(const Value& /*settings*/) {
  return kTuneDefaults;
}

constexpr ForeignPair kTuneReplaced[] = {
    {"dataset.*", "data.train"},
    {"dataset._component_", "data.train"},
    {"dataset.*", "data.dataset_name"},
    {"tokenizer.path", "tokenizer.path"},
};

}  // namespace

const ForeignProgram kTorchtune{
    .name = "torchtune",
    .rules = kTuneRules,
    .defaults = torchtune_defaults,
    .replaced = kTuneReplaced,
    .finish = finish_torchtune,
};

}  // namespace lockstep::config
