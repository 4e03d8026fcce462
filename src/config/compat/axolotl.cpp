// Axolotl's configuration files.
#include <algorithm>

#include "base/format.h"
#include "config/compat/axolotl_data.h"
#include "config/compat/foreign.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

constexpr ForeignWord kAxolotlAdapters[] = {
    {"lora", ""},
    {"qlora", "quantization.bits=4 quantization.type=nf4 quantization.double_quant=true"},
};
constexpr ForeignWord kAxolotlBf16[] = {
    {"auto", "training.bf16=true"},
    {"true", "training.bf16=true"},
    {"false", "training.bf16=false"},
    {"full", "", "weights without float32 masters are precision.stochastic_rounding"},
};
constexpr ForeignWord kAxolotlTf32[] = {
    {"auto", ""}, {"true", "training.tf32=true"}, {"false", "training.tf32=false"}};
constexpr ForeignWord kAxolotlCheckpointing[] = {
    {"true", "training.gradient_checkpointing=true"},
    {"false", "training.gradient_checkpointing=false"},
    {"offload", "", "activations are not offloaded; use true"},
    {"offload_disk", "", "activations are not offloaded; use true"},
    {"unsloth", "training.gradient_checkpointing=true"},
};
constexpr ForeignWord kAxolotlOptimizers[] = {
    {"adamw_torch", "training.optim=adamw_torch"},
    {"adamw_torch_fused", "training.optim=adamw_torch_fused"},
    {"adamw_hf", "training.optim=adamw_torch"},
    {"adamw_apex_fused", "training.optim=adamw_torch_fused"},
    {"adamw_bnb_8bit", "training.optim=adamw_bnb_8bit"},
    {"adamw_8bit", "training.optim=adamw_8bit"},
    {"adamw_torch_8bit", "training.optim=adamw_8bit"},
    {"paged_adamw_8bit", "training.optim=paged_adamw_8bit"},
    {"paged_adamw_32bit", "training.optim=paged_adamw_32bit"},
    {"lion_32bit", "training.optim=lion_32bit"},
    {"paged_lion_32bit", "training.optim=paged_lion_32bit"},
    {"sgd", "training.optim=sgd"},
    {"adafactor", "training.optim=adafactor"},
    {"muon", "training.optim=muon"},
    {"schedule_free_adamw", "training.optim=schedule_free_adamw"},
    {"ademamix", "training.optim=ademamix"},
};
constexpr ForeignWord kAxolotlSchedules[] = {
    {"cosine", "training.lr_scheduler_type=cosine"},
    {"linear", "training.lr_scheduler_type=linear"},
    {"constant", "training.lr_scheduler_type=constant"},
    {"constant_with_warmup", "training.lr_scheduler_type=constant_with_warmup"},
    {"polynomial", "training.lr_scheduler_type=polynomial"},
    {"cosine_with_restarts", "training.lr_scheduler_type=cosine_with_restarts"},
    {"inverse_sqrt", "training.lr_scheduler_type=inverse_sqrt"},
    {"cosine_with_min_lr", "training.lr_scheduler_type=cosine_with_min_lr"},
    {"warmup_stable_decay", "training.lr_scheduler_type=warmup_stable_decay"},
    {"reduce_lr_on_plateau", "training.lr_scheduler_type=reduce_lr_on_plateau"},
};
constexpr ForeignWord kAxolotlPacking[] = {
    {"true", "data.packing=documents"}, {"false", "data.packing=none"}};
constexpr ForeignWord kAxolotlLongRows[] = {
    {"truncate", "data.long_documents=truncate"},
    {"drop", "", "rows are truncated or split, not dropped; filter the file, or use truncate"},
};
constexpr ForeignWord kAxolotlObjectives[] = {
    {"dpo", "task.type=preference preference.objective=dpo"},
    {"ipo", "task.type=preference preference.objective=ipo"},
    {"kto", "task.type=preference preference.objective=kto"},
    {"orpo", "task.type=preference preference.objective=orpo"},
    {"simpo", "task.type=preference preference.objective=simpo"},
};
constexpr ForeignWord kAxolotlWandb[] = {{"true", "training.report_to=wandb"}, {"false", ""}};

void read_quantized_base(const RuleTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    target.set("quantization.bits", "4", value);
    target.set("quantization.type", "nf4", value);
    target.set("quantization.double_quant", "true", value);
  }
}

void read_eight_bits(const RuleTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    target.set("quantization.bits", "8", value);
  }
}

void read_target_modules(const RuleTarget& target, const std::string&, const Value& value) {
  set_list(
      target,
      "lora.target_modules",
      value.is_list() ? words_in(value) : std::vector{value.text},
      value);
}

void read_all_linear(const RuleTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    set_list(target, "lora.target_modules", {"all-linear"}, value);
  }
}

void read_validation_size(const RuleTarget& target, const std::string& name, const Value& value) {
  const double size = to_double(value.text).value_or(-1);
  if (size < 0 || size >= 1) {
    target.refuse(
        name, value, "must be a fraction below 1", "set data.validation=FILE for a number of rows");
  } else {
    target.set("data.validation_fraction", value.text, value);
  }
}

void read_wandb_project(const RuleTarget& target, const std::string&, const Value& value) {
  target.copy("training.project", value);
  set_list(target, "training.report_to", {"wandb"}, value);
}

void read_tensorboard(const RuleTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    set_list(target, "training.report_to", {"tensorboard"}, value);
  }
}

void read_shards(const RuleTarget& target, const std::string&, const Value& value) {
  if (!is_one(value)) {
    target.set("parallel.zero_stage", "3", value);
    target.set("parallel.shard_ranks", value.text, value);
  }
}

void read_chat_template(const RuleTarget& target, const std::string& name, const Value& value) {
  if (value.text != "tokenizer_default" && value.text != "jinja") {
    target.refuse(
        name,
        value,
        "this is a template of Axolotl's",
        "set data.chat_template=FILE, or chat_template=tokenizer_default to use the tokenizer's");
  }
}

void read_template_file(const RuleTarget& target, const std::string& name, const Value& value) {
  if (value.text.find('{') != std::string::npos) {
    target.refuse(
        name, value, "a template in the file is not supported", "save it as a file and name that");
  } else {
    target.copy("data.chat_template", value);
  }
}

void read_plugins(const RuleTarget& target, const std::string& name, const Value& value) {
  for (const std::string& plugin : words_in(value)) {
    const bool is_kernel = plugin.find("liger") != std::string::npos ||
                           plugin.find("cut_cross_entropy") != std::string::npos ||
                           plugin.find(".kernels") != std::string::npos ||
                           plugin.find("expert_parallel") != std::string::npos ||
                           plugin.find("swanlab") != std::string::npos;
    if (!is_kernel) {
      target.refuse(
          name, Value::scalar(plugin, true, value.origin), "this plugin is not supported");
    }
  }
}

constexpr std::string_view kAxolotlFolder = "read from the model's folder";
constexpr std::string_view kAxolotlOwnKernels = "Lockstep uses its own fused kernels";
constexpr std::string_view kAxolotlTracker = "set by the tracker's environment variables";
constexpr std::string_view kAxolotlNoTracker = "not a tracker of Lockstep's";
constexpr std::string_view kAxolotlTemplate = "the chat template defines them";
constexpr std::string_view kAxolotlSpecial =
    "special tokens are those of the tokenizer's folder: set tokenizer.path to a tokenizer that "
    "has them";
constexpr std::string_view kAxolotlNoReinforcement = "reinforcement learning is not supported";
constexpr std::string_view kAxolotlVision = "only text is trained on";
constexpr std::string_view kAxolotlMethod = "this method is not supported";
constexpr std::string_view kAxolotlRows =
    "rows are tokenized on all cores and cached in data.cache_dir";
constexpr std::string_view kAxolotlPadding = "padding has no loss";
constexpr std::string_view kAxolotlNoHub = "nothing is pushed to the Hub";

constexpr KeyRule kAxolotlRules[] = {
    {"base_model", kRead, "", "model.path"},
    {"tokenizer_config", kRead, "", "tokenizer.path"},
    {"sequence_len", kRead, "", "data.sequence_length"},
    {"micro_batch_size", kRead, "", "training.per_device_train_batch_size"},
    {"eval_batch_size", kRead, "", "training.per_device_eval_batch_size"},
    {"num_epochs", kRead, "", "training.num_train_epochs"},
    {"gradient_clipping", kRead, "", "training.max_grad_norm"},
    {"adam_eps", kRead, "", "training.adam_epsilon"},
    {"bfloat16", kRead, "", "training.bf16"},
    {"float16", kRead, "", "training.fp16"},
    {"lora_model_dir", kRead, "", "lora.adapter"},
    {"lora_modules_to_save", kRead, "", "lora.modules_to_save"},
    {"peft_use_rslora", kRead, "", "lora.use_rslora"},
    {"peft_use_dora", kRead, "", "lora.use_dora"},
    {"peft_layers_to_transform", kRead, "", "lora.layers_to_transform"},
    {"peft_init_lora_weights", kRead, "", "lora.init_lora_weights"},
    {"bnb_config_kwargs.bnb_4bit_use_double_quant", kRead, "", "quantization.double_quant"},
    {"bnb_config_kwargs.bnb_4bit_quant_type", kRead, "", "quantization.type"},
    {"wandb_name", kRead, "", "training.run_name"},
    {"rl_beta", kRead, "", "preference.beta"},
    {"dpo_beta", kRead, "", "preference.beta"},
    {"orpo_alpha", kRead, "", "preference.beta"},
    {"cpo_alpha", kRead, "", "preference.cpo_alpha"},
    {"simpo_gamma", kRead, "", "preference.simpo_gamma"},
    {"rpo_alpha", kRead, "", "preference.rpo_alpha"},
    {"dpo_label_smoothing", kRead, "", "preference.label_smoothing"},
    {"kto_desirable_weight", kRead, "", "preference.desirable_weight"},
    {"kto_undesirable_weight", kRead, "", "preference.undesirable_weight"},
    {"tensor_parallel_size", kRead, "", "parallel.tensor"},
    {"context_parallel_size", kRead, "", "parallel.context"},
    {"sequence_parallel_degree", kRead, "", "parallel.context"},
    {"expert_parallel_size", kRead, "", "parallel.expert"},
    {"noisy_embedding_alpha", kRead, "", "training.neftune_noise_alpha"},
    {"auto_resume_from_checkpoints", kRead, "", "training.resume_from_checkpoint=true"},
    {"curriculum_sampling", kRead, "", "training.train_sampling_strategy=sequential"},
    {"reward_model", kRead, "", "task.type=reward_model"},
    read_as("rl", "task.type=preference, preference.objective", read_word<kAxolotlObjectives>),
    read_as("adapter", "section lora; qlora: quantization.bits=4", read_word<kAxolotlAdapters>),
    read_as("load_in_4bit", "quantization.bits=4 with nf4 and double_quant", read_quantized_base),
    read_as("load_in_8bit", "quantization.bits=8", read_eight_bits),
    read_as("lora_target_modules", "lora.target_modules", read_target_modules),
    read_as("lora_target_linear", "lora.target_modules=all-linear", read_all_linear),
    read_as("bf16", "training.bf16; auto: true", read_word<kAxolotlBf16>),
    read_as("tf32", "training.tf32", read_word<kAxolotlTf32>),
    read_as(
        "gradient_checkpointing",
        "training.gradient_checkpointing",
        read_word<kAxolotlCheckpointing>),
    read_as("optimizer", "training.optim", read_word<kAxolotlOptimizers>),
    read_as("lr_scheduler", "training.lr_scheduler_type", read_word<kAxolotlSchedules>),
    read_as("sample_packing", "data.packing=documents; false: none", read_word<kAxolotlPacking>),
    read_as("excess_length_strategy", "data.long_documents", read_word<kAxolotlLongRows>),
    read_as("val_set_size", "data.validation_fraction", read_validation_size),
    finished("datasets", "data.train or data.dataset_name, data.prompt, data.train_split"),
    finished("pretraining_dataset", "as datasets"),
    finished("test_datasets", "data.validation"),
    read_as("chat_template", "tokenizer_default: the tokenizer's own", read_chat_template),
    read_as("chat_template_jinja", "data.chat_template", read_template_file),
    read_as("wandb_project", "training.project, training.report_to=wandb", read_wandb_project),
    read_as("use_wandb", "training.report_to=wandb", read_word<kAxolotlWandb>),
    read_as("use_tensorboard", "training.report_to=tensorboard", read_tensorboard),
    read_as("dp_shard_size", "parallel.zero_stage=3, parallel.shard_ranks", read_shards),
    read_as("plugins", "kernels: nothing; others are refused", read_plugins),
    finished("batch_size", "training.gradient_accumulation_steps"),
    finished("saves_per_epoch", "training.save_strategy, training.save_steps"),
    finished("evals_per_epoch", "training.eval_strategy, training.eval_steps"),
    finished("train_on_inputs", "data.chat_loss=all for chats"),

    {"model_type", kIgnored, "", kAxolotlFolder},
    {"tokenizer_type", kIgnored, "", kAxolotlFolder},
    {"tokenizer_use_fast", kIgnored, "", kAxolotlFolder},
    {"tokenizer_legacy", kIgnored, "", kAxolotlFolder},
    {"tokenizer_use_mistral_common", kIgnored, "", kAxolotlFolder},
    {"base_model_config", kIgnored, "", kAxolotlFolder},
    {"base_model_ignore_patterns", kIgnored, "", kAxolotlFolder},
    {"is_*", kIgnored, "", kAxolotlFolder},
    {"attn_implementation", kIgnored, "", kAxolotlOwnKernels},
    {"flash_attention", kIgnored, "", kAxolotlOwnKernels},
    {"flash_attn_*", kIgnored, "", kAxolotlOwnKernels},
    {"flash_optimum", kIgnored, "", kAxolotlOwnKernels},
    {"flex_attention", kIgnored, "", kAxolotlOwnKernels},
    {"flex_attn_compile_kwargs*", kIgnored, "", kAxolotlOwnKernels},
    {"sdp_attention", kIgnored, "", kAxolotlOwnKernels},
    {"xformers_attention", kIgnored, "", kAxolotlOwnKernels},
    {"eager_attention", kIgnored, "", kAxolotlOwnKernels},
    {"s2_attention", kRefused, "false", kAxolotlMethod},
    {"liger_*", kIgnored, "", kAxolotlOwnKernels},
    {"cut_cross_entropy", kIgnored, "", kAxolotlOwnKernels},
    {"chunked_cross_entropy", kIgnored, "", kAxolotlOwnKernels},
    {"unsloth_*", kIgnored, "", kAxolotlOwnKernels},
    {"use_kernels", kIgnored, "", kAxolotlOwnKernels},
    {"use_scattermoe", kIgnored, "", kAxolotlOwnKernels},
    {"use_sonicmoe", kIgnored, "", kAxolotlOwnKernels},
    {"use_glm_dsa_kernels", kIgnored, "", kAxolotlOwnKernels},
    {"use_dsv4_kernels", kIgnored, "", kAxolotlOwnKernels},
    {"experts_implementation", kIgnored, "", kAxolotlOwnKernels},
    {"fused_attn_kernel", kIgnored, "", kAxolotlOwnKernels},
    {"gemma4_hybrid_attn_impl", kIgnored, "", kAxolotlOwnKernels},
    {"lora_mlp_kernel", kIgnored, "", kAxolotlOwnKernels},
    {"lora_qkv_kernel", kIgnored, "", kAxolotlOwnKernels},
    {"lora_o_kernel", kIgnored, "", kAxolotlOwnKernels},
    {"tiled_mlp", kIgnored, "", kAxolotlOwnKernels},
    {"expert_parallel_*", kIgnored, "", kAxolotlOwnKernels},
    {"low_cpu_mem_usage", kIgnored, "", "weights are read as memory-mapped files"},
    {"lora_on_cpu", kIgnored, "", "weights are read as memory-mapped files"},
    {"experimental_skip_move_to_device", kIgnored, "", "weights are read as memory-mapped files"},
    {"device_map*", kIgnored, "", "a rank uses one device"},
    {"gpu_memory_limit", kIgnored, "", "a rank uses one device"},
    {"quantize_moe_experts", kIgnored, "", "experts are quantized like other linear layers"},
    {"llama4_linearized_experts", kIgnored, "", kAxolotlFolder},
    {"lora_fan_in_fan_out", kIgnored, "", "the layout of weights is known"},
    {"dataset_prepared_path", kIgnored, "", kAxolotlRows},
    {"dataset_processes", kIgnored, "", kAxolotlRows},
    {"dataset_num_proc", kIgnored, "", kAxolotlRows},
    {"dataset_keep_in_memory", kIgnored, "", kAxolotlRows},
    {"streaming_multipack_buffer_size", kIgnored, "", kAxolotlRows},
    {"pretrain_multipack_buffer_size", kIgnored, "", kAxolotlRows},
    {"sample_packing_*", kIgnored, "", "documents are packed by best fit"},
    {"eval_sample_packing", kIgnored, "", "documents are packed by best fit"},
    {"total_num_tokens", kIgnored, "", "documents are packed by best fit"},
    {"multipack_real_batches", kIgnored, "", "documents are packed by best fit"},
    {"pad_to_sequence_len", kIgnored, "", kAxolotlPadding},
    {"special_tokens.pad_token", kIgnored, "", kAxolotlPadding},
    {"eot_tokens", kIgnored, "", kAxolotlTemplate},
    {"default_system_message", kRefused, "", "write it in the rows"},
    {"wandb_*", kIgnored, "", kAxolotlTracker},
    {"mlflow_*", kIgnored, "", "set training.report_to=mlflow and MLflow's environment variables"},
    {"use_swanlab", kIgnored, "", kAxolotlNoTracker},
    {"swanlab_*", kIgnored, "", kAxolotlNoTracker},
    {"use_comet", kIgnored, "", kAxolotlNoTracker},
    {"comet_*", kIgnored, "", kAxolotlNoTracker},
    {"trackio_*", kIgnored, "", kAxolotlNoTracker},
    {"use_otel_metrics", kIgnored, "", kAxolotlNoTracker},
    {"otel_*", kIgnored, "", kAxolotlNoTracker},
    {"hub_*", kIgnored, "", kAxolotlNoHub},
    {"hf_use_auth_token", kIgnored, "", kAxolotlNoHub},
    {"push_dataset_to_hub", kIgnored, "", kAxolotlNoHub},
    {"strict", kIgnored, "", "unknown keys are always refused"},
    {"debug", kIgnored, "", "use --log_level debug"},
    {"ddp", kIgnored, "", "the launcher decides"},
    {"world_size", kIgnored, "", "the launcher decides"},
    {"fsdp_version", kIgnored, "", "there is one implementation"},
    {"fsdp_final_state_dict_type", kIgnored, "", "a checkpoint is always one model folder"},
    {"loss_watchdog_*", kIgnored, "", "a run stops at NaN or Inf; no loss is too high"},
    {"eval_table_size", kIgnored, "", "monitor.samples prints samples"},
    {"eval_max_new_tokens", kIgnored, "", "monitor.samples prints samples"},
    {"save_first_step", kIgnored, "", "the first checkpoint is of save_steps"},
    {"model_config.output_router_logits",
     kIgnored,
     "",
     "set training.router_aux_loss to balance experts"},

    {"special_tokens*", kRefused, "", kAxolotlSpecial},
    {"tokens*", kRefused, "", kAxolotlSpecial},
    {"added_tokens_overrides*", kRefused, "", kAxolotlSpecial},
    {"revision_of_model", kRefused, "", "set model.path to a folder of that revision"},
    {"model_config*", kRefused, "", "change config.json of the model's folder"},
    {"overrides_of_model_config*", kRefused, "", "change config.json of the model's folder"},
    {"cls_model_config", kRefused, "", kAxolotlVision},
    {"processor_type", kRefused, "", kAxolotlVision},
    {"skip_prepare_dataset", kRefused, "false", kAxolotlVision},
    {"freeze_mm_modules", kRefused, "false", kAxolotlVision},
    {"image_*", kRefused, "", kAxolotlVision},
    {"activation_offloading",
     kRefused,
     "false",
     "activations are not offloaded; set gradient_checkpointing=true"},
    {"shuffle_merged_datasets",
     kRefused,
     "true",
     "rows are always shuffled; set train_sampling_strategy=sequential"},
    {"dataset_exact_deduplication", kRefused, "false", "remove duplicates from the file"},
    {"min_sample_len", kRefused, "", "rows are not dropped; filter the file"},
    {"lora_target_parameters",
     kRefused,
     "",
     "adapters belong to linear layers: use lora_target_modules"},
    {"loraplus_*", kRefused, "", "set training.learning_rates by regular expression"},
    {"embedding_lr*", kRefused, "", "set training.learning_rates by regular expression"},
    {"lr_groups", kRefused, "", "set training.learning_rates by regular expression"},
    {"unfrozen_parameters", kRefused, "", "set model.freeze to the other parameters"},
    {"cosine_min_lr_ratio",
     kRefused,
     "0|0.0",
     "use lr_scheduler: cosine_with_min_lr with lr_scheduler_kwargs"},
    {"cosine_constant_lr_ratio", kRefused, "0|0.0", kAxolotlMethod},
    {"lr_quadratic_warmup", kRefused, "false", kAxolotlMethod},
    {"eta_min", kRefused, "", "use lr_scheduler: cosine_with_min_lr with lr_scheduler_kwargs"},
    {"dp_replicate_size", kRefused, "1", "set parallel.shard_ranks; the other ranks are replicas"},
    {"gptq*", kRefused, "false", "quantized weights are those of bitsandbytes"},
    {"model_quantization_config*",
     kRefused,
     "",
     "the model is quantized with the section quantization"},
    {"bnb_config_kwargs*", kRefused, "", "use the section quantization"},
    {"resize_token_embeddings_to_32x", kRefused, "false", "set model.resize_embeddings=true"},
    {"trl*", kRefused, "", kAxolotlNoReinforcement},
    {"vllm*", kRefused, "", kAxolotlNoReinforcement},
    {"ebft*", kRefused, "", kAxolotlNoReinforcement},
    {"process_reward_model", kRefused, "false", kAxolotlMethod},
    {"num_labels", kRefused, "1", "set task.type=sequence_classification"},
    {"relora*", kRefused, "false", kAxolotlMethod},
    {"jagged_restart_*", kRefused, "false", kAxolotlMethod},
    {"lisa_*", kRefused, "", kAxolotlMethod},
    {"qat*", kRefused, "", kAxolotlMethod},
    {"use_eaft", kRefused, "false", kAxolotlMethod},
    {"eaft_*", kRefused, "", kAxolotlMethod},
    {"diffusion*", kRefused, "", kAxolotlMethod},
    {"peft*", kRefused, "", kAxolotlMethod},
    {"use_onebitllms", kRefused, "false", kAxolotlMethod},
    {"nvfp4_merge_aware", kRefused, "false", kAxolotlMethod},
    {"dsv4_fp4_grouped_mode", kRefused, "", kAxolotlMethod},
    {"fp8*", kRefused, "false", "set precision.fp8=tensor"},
    {"reinit_weights", kRefused, "false", "set model.path to a config.json, which has no weights"},
    {"torchdistx_path", kRefused, "", kAxolotlMethod},
    {"use_ray", kRefused, "false", "start the ranks with lockstep launch"},
    {"ray_*", kRefused, "", "start the ranks with lockstep launch"},
    {"streaming", kRefused, "false", "data sets are files on this machine"},
    {"do_causal_lm_eval", kRefused, "false", "use lockstep eval and lockstep generate"},
    {"eval_causal_lm_metrics", kRefused, "", "use lockstep eval and lockstep generate"},
    {"max_packed_sequence_len", kRefused, "", "set sample_packing=true"},
};

/// Returns n per epoch as a strategy: "epoch" for 1, otherwise "steps" with a fraction of all
/// steps.
void set_per_epoch(
    const RuleTarget& target, const std::string& what, const Value& value, double epochs) {
  const double count = to_double(value.text).value_or(0);
  if (count <= 0) {
    target.set("training." + what + "_strategy", "no", value);
  } else if (count == 1) {
    target.set("training." + what + "_strategy", "epoch", value);
  } else {
    target.set("training." + what + "_strategy", "steps", value);
    target.set("training." + what + "_steps", number_text(1 / (count * epochs)), value);
  }
}

const Value* set_value(const Value& file, const char* name) {
  const Value* found = file.find(name);
  return found == nullptr || found->is_null() || text_in(file, {name}).empty() ? nullptr : found;
}

void finish_schedule(const Value& file, const RuleTarget& target) {
  const double epochs = to_double(text_in(file, {"num_epochs"})).value_or(1);
  const auto is_free = [&](const std::string& key) {
    return target.settings.find(Path{"training", key}) == nullptr;
  };
  const Value* ratio = target.settings.find(Path{"training", "warmup_ratio"});
  if (ratio != nullptr && is_free("warmup_steps")) {
    target.copy("training.warmup_steps", Value(*ratio));  // a fraction, and no default
  }
  const Value* saves = set_value(file, "saves_per_epoch");
  if (!is_free("save_steps") && is_free("save_strategy")) {
    target.set("training.save_strategy", "steps", file);
  } else if (saves != nullptr) {
    set_per_epoch(target, "save", *saves, epochs);
  }
  const double held_out = to_double(text_in(file, {"val_set_size"})).value_or(0);
  const bool has_validation =
      held_out > 0 || target.settings.find(Path{"data", "validation"}) != nullptr;
  const Value* evaluations = set_value(file, "evals_per_epoch");
  if (!has_validation) {
    if (Value* training = target.settings.find("training")) {
      training->erase("eval_strategy");
      training->erase("eval_steps");
    }
  } else if (!is_free("eval_steps")) {
    target.set("training.eval_strategy", "steps", file);
  } else if (evaluations != nullptr) {
    set_per_epoch(target, "eval", *evaluations, epochs);
  } else if (is_free("eval_strategy")) {
    target.set("training.eval_strategy", "epoch", file);
  }
}

/// Reads the data sets, whose rows depend on the task.
void finish_data(const Value& file, const RuleTarget& target) {
  for (const char* name : {"datasets", "pretraining_dataset"}) {
    if (const Value* sets = file.find(name); sets != nullptr && !sets->is_null()) {
      read_axolotl_datasets(target, name, *sets);
    }
  }
  if (const Value* sets = file.find("test_datasets"); sets != nullptr && sets->is_list()) {
    read_axolotl_tests(target, "test_datasets", *sets);
  }
}

void finish_axolotl(const Value& file, const RuleTarget& target) {
  finish_data(file, target);
  finish_schedule(file, target);
  if (text_in(file, {"adapter"}).empty()) {
    drop_adapter(target, "adapter is not set");
  } else if (target.settings.find(Path{"lora", "r"}) == nullptr) {
    target.set("lora.r", "8", file);
  }
  if (const Value* inputs = set_value(file, "train_on_inputs");
      inputs != nullptr && is_on(*inputs)) {
    if (text_in(target.settings, {"data", "prompt"}) == "chat") {
      target.set("data.chat_loss", "all", *inputs);
    } else if (text_in(target.settings, {"data", "prompt"}) != "none") {
      target.refuse(
          "train_on_inputs",
          *inputs,
          "prompts are only learned in chats",
          "convert the rows to messages");
    }
  }
  const Value* batch = set_value(file, "batch_size");
  const int64_t micro = to_integer(text_in(file, {"micro_batch_size"})).value_or(1);
  if (batch != nullptr && set_value(file, "gradient_accumulation_steps") == nullptr) {
    const int64_t all = to_integer(batch->text).value_or(micro);
    target.set(
        "training.gradient_accumulation_steps",
        std::to_string(std::max<int64_t>(all / std::max<int64_t>(micro, 1), 1)),
        *batch);
  }
  if (const Value* micro_batch = set_value(file, "micro_batch_size");
      micro_batch != nullptr && set_value(file, "eval_batch_size") == nullptr) {
    target.copy("training.per_device_eval_batch_size", *micro_batch);
  }
  if (const Value* fsdp = file.find("fsdp_config");
      fsdp != nullptr && fsdp->is_map() && set_value(file, "fsdp") == nullptr) {
    const Value* list = file.find("fsdp");
    if (list == nullptr || list->items.empty()) {
      target.set("training.fsdp", "full_shard auto_wrap", *fsdp);
    }
  }
}

constexpr ForeignPair kAxolotlDefaults[] = {
    {"training.num_train_epochs", "1"},  // the first, as max_steps replaces it
    {"training.per_device_train_batch_size", "1"},
    {"training.lr_scheduler_type", "cosine"},
    {"training.warmup_steps", "0.03"},
    {"training.save_strategy", "epoch"},
    {"data.sequence_length", "512"},
    {"data.packing", "none"},
};

std::span<const ForeignPair> axolotl_defaults(const Value& settings) {
  const bool counts_steps = settings.find(Path{"training", "max_steps"}) != nullptr;
  return std::span(kAxolotlDefaults).subspan(counts_steps ? 1 : 0);
}

constexpr ForeignPair kAxolotlReplaced[] = {
    {"datasets", "data.train"},
    {"datasets", "data.dataset_name"},
    {"pretraining_dataset", "data.train"},
    {"test_datasets", "data.validation"},
    {"chat_template", "data.chat_template"},
    {"special_tokens*", "tokenizer.path"},
    {"tokens*", "tokenizer.path"},
};

}  // namespace

const ForeignProgram kAxolotl{
    .name = "Axolotl",
    .rules = kAxolotlRules,
    .defaults = axolotl_defaults,
    .replaced = kAxolotlReplaced,
    .differs = "rows longer than sequence_len are truncated, not dropped",
    .finish = finish_axolotl,
};

}  // namespace lockstep::config
