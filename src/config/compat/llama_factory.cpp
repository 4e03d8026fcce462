// LLaMA-Factory's configuration files, and the data sets that its dataset_info.json lists.
#include <algorithm>
#include <filesystem>

#include "base/format.h"
#include "config/compat/foreign.h"
#include "config/core/scalar.h"
#include "config/core/yaml.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

constexpr ForeignWord kFactoryStages[] = {
    {"sft", ""},
    {"pt", "data.prompt=none data.packing=concatenate"},
    {"rm", "task.type=reward_model"},
    {"dpo", "task.type=preference"},
    {"kto", "task.type=preference preference.objective=kto"},
};
constexpr ForeignWord kFactoryFinetuning[] = {
    {"lora", ""},
    {"full", ""},
    {"freeze",
     "",
     "set finetuning_type: full, and model.freeze to the parameters that are not trained"},
};
constexpr ForeignWord kFactoryLosses[] = {
    {"sigmoid", "preference.loss_type=sigmoid"},
    {"hinge", "preference.loss_type=hinge"},
    {"ipo", "preference.objective=ipo"},
    {"orpo", "preference.objective=orpo"},
    {"simpo", "preference.objective=simpo"},
};
constexpr ForeignWord kFactoryMethods[] = {{"bnb", ""}, {"bitsandbytes", ""}};

void read_adapter_target(const RuleTarget& target, const std::string&, const Value& value) {
  std::vector<std::string> words = words_in(value);
  if (words == std::vector<std::string>{"all"}) {
    words = {"all-linear"};
  }
  set_list(target, "lora.target_modules", words, value);
}

void read_saved_modules(const RuleTarget& target, const std::string&, const Value& value) {
  set_list(target, "lora.modules_to_save", words_in(value), value);
}

void read_no_checkpointing(const RuleTarget& target, const std::string&, const Value& value) {
  target.set("training.gradient_checkpointing", is_on(value) ? "false" : "true", value);
}

void read_neat_packing(const RuleTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    target.set("data.packing", "documents", value);
  }
}

void read_plain_packing(const RuleTarget& target, const std::string&, const Value& value) {
  target.set("data.packing", is_on(value) ? "concatenate" : "none", value);
}

void read_validation(const RuleTarget& target, const std::string& name, const Value& value) {
  const double size = to_double(value.text).value_or(-1);
  if (size < 0 || size >= 1) {
    target.refuse(
        name, value, "must be a fraction below 1", "set data.validation=FILE for a number of rows");
  } else {
    target.set("data.validation_fraction", value.text, value);
  }
}

constexpr std::string_view kFactoryNotTraining =
    "used by commands other than train: see lockstep generate, export and eval";
constexpr std::string_view kFactoryOwnKernels = "Lockstep uses its own kernels";
constexpr std::string_view kFactoryMethod = "this method is not supported";
constexpr std::string_view kFactoryVision = "only text is trained on";
constexpr std::string_view kFactoryWays = "use lockstep launch or lockstep submit";
constexpr std::string_view kFactoryNewTrainer =
    "a file of LLaMA-Factory's v1 trainer, which is not supported";

constexpr KeyRule kFactoryRules[] = {
    {"adapter_name_or_path", kRead, "", "lora.adapter"},
    {"lora_rank", kRead, "", "lora.r"},
    {"lora_alpha", kRead, "", "lora.lora_alpha"},
    {"lora_dropout", kRead, "", "lora.lora_dropout"},
    {"use_rslora", kRead, "", "lora.use_rslora"},
    {"use_dora", kRead, "", "lora.use_dora"},
    {"pissa_init", kRead, "", "lora.init_lora_weights=pissa"},
    {"cutoff_len", kRead, "", "data.sequence_length"},
    {"quantization_bit", kRead, "", "quantization.bits"},
    {"quantization_type", kRead, "", "quantization.type"},
    {"double_quantization", kRead, "", "quantization.double_quant"},
    {"pref_beta", kRead, "", "preference.beta"},
    {"pref_ftx", kRead, "", "preference.rpo_alpha"},
    {"dpo_label_smoothing", kRead, "", "preference.label_smoothing"},
    {"simpo_gamma", kRead, "", "preference.simpo_gamma"},
    {"kto_chosen_weight", kRead, "", "preference.desirable_weight"},
    {"kto_rejected_weight", kRead, "", "preference.undesirable_weight"},
    {"resize_vocab", kRead, "", "model.resize_embeddings"},
    {"moe_aux_loss_coef", kRead, "", "training.router_aux_loss_coef"},
    {"early_stopping_steps", kRead, "", "training.early_stopping_patience"},
    {"sequence_parallel_size", kRead, "", "parallel.context"},
    {"train_on_prompt", kRead, "", "data.chat_loss=all"},
    {"mask_history", kRead, "", "data.chat_loss=last"},
    {"use_adam_mini", kRead, "", "training.optim=adam_mini"},
    {"use_muon", kRead, "", "training.optim=muon"},
    {"pure_bf16", kRead, "", "training.bf16"},
    {"fp8", kRead, "", "precision.fp8=tensor"},
    read_as("stage", "task.type, preference.objective", read_word<kFactoryStages>),
    read_as("finetuning_type", "lora: section lora", read_word<kFactoryFinetuning>),
    read_as("lora_target", "lora.target_modules; all: all-linear", read_adapter_target),
    read_as("additional_target", "lora.modules_to_save", read_saved_modules),
    read_as("pref_loss", "preference.loss_type or preference.objective", read_word<kFactoryLosses>),
    read_as("quantization_method", "bnb: nothing", read_word<kFactoryMethods>),
    read_as(
        "disable_gradient_checkpointing",
        "training.gradient_checkpointing, inverted",
        read_no_checkpointing),
    read_as("packing", "data.packing=concatenate; false: none", read_plain_packing),
    read_as("neat_packing", "data.packing=documents", read_neat_packing),
    read_as("val_size", "data.validation_fraction", read_validation),
    finished("dataset", "data.train, from dataset_info.json"),
    finished("eval_dataset", "data.validation, from dataset_info.json"),
    finished("dataset_dir", "the folder of dataset_info.json"),
    finished("max_samples", "a slice of data.train"),

    {"flash_attn", kIgnored, "", kFactoryOwnKernels},
    {"enable_liger_kernel", kIgnored, "", kFactoryOwnKernels},
    {"use_unsloth", kIgnored, "", kFactoryOwnKernels},
    {"use_unsloth_gc", kIgnored, "", kFactoryOwnKernels},
    {"use_v1_kernels", kIgnored, "", kFactoryOwnKernels},
    {"use_reentrant_gc", kIgnored, "", "recomputation has one form"},
    {"upcast_layernorm", kIgnored, "", "norms are computed in float32"},
    {"upcast_lmhead_output", kIgnored, "", "losses are computed in float32"},
    {"low_cpu_mem_usage", kIgnored, "", "weights are read as memory-mapped files"},
    {"plot_loss", kIgnored, "", "see lockstep monitor"},
    {"print_param_status", kIgnored, "", "the number of trained parameters is always logged"},
    {"tokenized_path", kIgnored, "", "rows are cached in data.cache_dir"},
    {"buffer_size", kIgnored, "", "rows are cached in data.cache_dir"},
    {"use_swanlab", kIgnored, "", "not a tracker of Lockstep's"},
    {"swanlab_*", kIgnored, "", "not a tracker of Lockstep's"},
    {"fp8_*", kIgnored, "", "set precision.fp8"},
    {"template",
     kIgnored,
     "",
     "the tokenizer's own chat template is used; data.chat_template=FILE sets another"},

    {"model", kRefused, "", kFactoryNewTrainer},
    {"micro_batch_size", kRefused, "", kFactoryNewTrainer},
    {"batching_strategy", kRefused, "", kFactoryNewTrainer},
    {"cp_*", kRefused, "", kFactoryNewTrainer},
    {"model_class", kRefused, "", kFactoryNewTrainer},
    {"train_dataset", kRefused, "", kFactoryNewTrainer},
    {"dist_config*", kRefused, "", kFactoryNewTrainer},
    {"peft_config*", kRefused, "", kFactoryNewTrainer},
    {"kernel_config*", kRefused, "", kFactoryNewTrainer},
    {"quant_config*", kRefused, "", kFactoryNewTrainer},
    {"init_config*", kRefused, "", kFactoryNewTrainer},
    {"optim_config*", kRefused, "", kFactoryNewTrainer},
    {"sample_backend", kRefused, "", kFactoryNewTrainer},
    {"infer_*", kRefused, "", kFactoryNotTraining},
    {"export_*", kRefused, "", kFactoryNotTraining},
    {"do_sample", kRefused, "", kFactoryNotTraining},
    {"temperature", kRefused, "", kFactoryNotTraining},
    {"top_p", kRefused, "", kFactoryNotTraining},
    {"top_k", kRefused, "", kFactoryNotTraining},
    {"max_new_tokens", kRefused, "", kFactoryNotTraining},
    {"predict_with_generate", kRefused, "false", kFactoryNotTraining},
    {"compute_accuracy", kRefused, "false", "set task.metrics, or see lockstep eval"},
    {"streaming", kRefused, "false", "data sets are files on this machine"},
    {"mix_strategy", kRefused, "concat", "use data.mixture"},
    {"interleave_probs", kRefused, "", "use data.mixture"},
    {"default_system", kRefused, "", "write it in the rows"},
    {"loraplus_*", kRefused, "", "set training.learning_rates by regular expression"},
    {"pissa_*", kRefused, "false|16", "the adapter is saved as it is trained"},
    {"freeze_language_model", kRefused, "false", kFactoryVision},
    {"freeze_multi_modal_projector", kIgnored, "", kFactoryVision},
    {"freeze_vision_tower", kIgnored, "", kFactoryVision},
    {"freeze_trainable_*", kRefused, "", "set model.freeze to the parameters that are not trained"},
    {"freeze_extra_modules",
     kRefused,
     "",
     "set model.freeze to the parameters that are not trained"},
    {"image_*", kIgnored, "", kFactoryVision},
    {"video_*", kIgnored, "", kFactoryVision},
    {"audio_*", kIgnored, "", kFactoryVision},
    {"rope_scaling", kRefused, "", "change config.json of the model's folder"},
    {"shift_attn", kRefused, "false", kFactoryMethod},
    {"mixture_of_depths", kRefused, "", kFactoryMethod},
    {"use_galore", kRefused, "false", kFactoryMethod},
    {"galore_*", kRefused, "", kFactoryMethod},
    {"use_apollo", kRefused, "false", kFactoryMethod},
    {"apollo_*", kRefused, "", kFactoryMethod},
    {"use_badam", kRefused, "false", kFactoryMethod},
    {"badam_*", kRefused, "", kFactoryMethod},
    {"use_llama_pro", kRefused, "false", kFactoryMethod},
    {"oft_*", kRefused, "", kFactoryMethod},
    {"use_dft_loss", kRefused, "false", kFactoryMethod},
    {"use_asft_loss", kRefused, "false", kFactoryMethod},
    {"asft_*", kRefused, "", kFactoryMethod},
    {"use_eaft_loss", kRefused, "false", kFactoryMethod},
    {"ref_model*", kRefused, "", "the reference is the initial model"},
    {"reward_model*", kRefused, "", "reinforcement learning is not supported"},
    {"ppo_*", kRefused, "", "reinforcement learning is not supported"},
    {"use_kt", kRefused, "false", kFactoryMethod},
    {"kt_*", kRefused, "", kFactoryMethod},
    {"ray_*", kRefused, "", kFactoryWays},
    {"resources_per_worker*", kRefused, "", kFactoryWays},
    {"placement_strategy", kRefused, "", kFactoryWays},
    {"tensor_model_parallel_size", kRead, "", "parallel.tensor"},
    {"pipeline_model_parallel_size", kRead, "", "parallel.pipeline"},
    {"expert_model_parallel_size", kRead, "", "parallel.expert"},
    {"context_parallel_size", kRead, "", "parallel.context"},
    {"sequence_parallel", kRead, "", "parallel.sequence_parallel"},
    {"use_distributed_optimizer", kRead, "", "parallel.zero_stage=1"},
    {"recompute_granularity", kRead, "", "parallel.recompute"},
    {"overlap_*", kIgnored, "", "communication always overlaps computation"},
    {"apply_rope_fusion", kIgnored, "", kFactoryOwnKernels},
    {"bias_activation_fusion", kIgnored, "", kFactoryOwnKernels},
    {"moe_grouped_gemm", kIgnored, "", kFactoryOwnKernels},
    {"moe_token_dispatcher_type", kIgnored, "", kFactoryOwnKernels},
};

/// Entry of dataset_info.json.
struct Listed {
  std::string file;    // on this machine; empty: on the Hub
  std::string hub;     // name
  std::string prompt;  // data.prompt; empty: recognized by the rows
};

Listed listed_set(const Value& entry, const std::filesystem::path& folder) {
  Listed listed;
  if (const std::string file = text_in(entry, {"file_name"}); !file.empty()) {
    listed.file = (folder / file).string();
  }
  listed.hub = text_in(entry, {"hf_hub_url"});
  const std::string formatting = text_in(entry, {"formatting"});
  if (const Value* ranking = entry.find("ranking"); ranking == nullptr || !is_on(*ranking)) {
    listed.prompt = formatting == "sharegpt" || formatting == "openai" ? "chat" : "";
  }
  return listed;
}

/// Reads the data sets that `key` names from dataset_info.json.
void read_listed(
    const Value& file, const std::string& key, const std::string& ours, const RuleTarget& target) {
  const Value* names = file.find(key);
  if (names == nullptr || names->is_null()) {
    return;
  }
  const std::string given = text_in(file, {"dataset_dir"});
  const std::filesystem::path folder = given.empty() ? "data" : given;
  const std::filesystem::path info = folder / "dataset_info.json";
  std::error_code ignored;
  if (!std::filesystem::exists(info, ignored)) {
    target.refuse(
        key,
        *names,
        fmt::format("{} does not exist", info.string()),
        fmt::format("set dataset_dir to its folder, or {}=FILE", ours));
    return;
  }
  const Value all = read_config_file(info);
  const std::string slice = text_in(file, {"max_samples"});
  std::vector<std::string> files;
  for (const std::string& name : words_in(*names)) {
    const Value* entry = all.find(name);
    const Listed listed = entry == nullptr ? Listed{} : listed_set(*entry, folder);
    if (listed.file.empty()) {
      target.refuse(
          key,
          Value::scalar(name, true, names->origin),
          listed.hub.empty() ? fmt::format("not listed in {}", info.string())
                             : fmt::format("is {} on the Hub, and not a file", listed.hub),
          fmt::format("download it, and set {}=FILE", ours));
      continue;
    }
    files.push_back(listed.file + (slice.empty() ? "" : fmt::format("[:{}]", slice)));
    if (!listed.prompt.empty() && target.settings.find(Path{"task", "type"}) == nullptr) {
      target.set("data.prompt", listed.prompt, *names);
    }
  }
  if (!files.empty()) {
    set_list(target, ours, files, *names);
  }
}

void finish_llama_factory(const Value& file, const RuleTarget& target) {
  read_listed(file, "dataset", "data.train", target);
  read_listed(file, "eval_dataset", "data.validation", target);
  const std::string type = text_in(file, {"finetuning_type"});
  if (!type.empty() && type != "lora") {
    drop_adapter(target, fmt::format("finetuning_type is {}", type));
    return;
  }
  const auto is_free = [&](const char* key) {
    return target.settings.find(Path{"lora", key}) == nullptr;
  };
  if (is_free("r")) {
    target.set("lora.r", "8", file);
  }
  if (is_free("lora_alpha")) {
    const int64_t rank = to_integer(text_in(target.settings, {"lora", "r"})).value_or(8);
    target.set("lora.lora_alpha", std::to_string(2 * rank), file);
  }
  if (is_free("target_modules")) {
    set_list(target, "lora.target_modules", {"all-linear"}, file);
  }
}

constexpr ForeignPair kFactoryDefaults[] = {
    {"data.sequence_length", "2048"},
    {"data.packing", "none"},
    {"training.gradient_checkpointing", "true"},
};

std::span<const ForeignPair> llama_factory_defaults(const Value& /*settings*/) {
  return kFactoryDefaults;
}

constexpr ForeignPair kFactoryReplaced[] = {
    {"dataset", "data.train"},
    {"dataset", "data.dataset_name"},
    {"dataset_dir", "data.train"},
    {"eval_dataset", "data.validation"},
    {"template", "data.chat_template"},
};

}  // namespace

const ForeignProgram kLlamaFactory{
    .name = "LLaMA-Factory",
    .rules = kFactoryRules,
    .defaults = llama_factory_defaults,
    .replaced = kFactoryReplaced,
    .finish = finish_llama_factory,
};

}  // namespace lockstep::config
