// Tables of keys without an effect.
#include "model/known_keys.h"

#include <algorithm>

namespace lockstep::model {
namespace {

constexpr const char* kOrigin = "origin of the file";
constexpr const char* kClasses = "Python classes and code, which are never run";
constexpr const char* kOutputs = "outputs of the Python classes";
constexpr const char* kSame = "another computation of the same result";
constexpr const char* kOtherTask = "another task";
constexpr const char* kDerived = "derived from other keys";
constexpr const char* kGeneration = "generation; generation_config.json is used";
constexpr const char* kSpeed = "speed or memory";
constexpr const char* kBeams = "beam search, which is not supported";

constexpr HarmlessKey kConfigKeys[] = {
    {"_name_or_path", kOrigin},
    {"_commit_hash", kOrigin},
    {"transformers_version", kOrigin},
    {"transformers.js_config", kOrigin},
    {"unsloth_version", kOrigin},
    {"unsloth_fixed", kOrigin},
    {"model_name", kOrigin},
    {"license", kOrigin},
    {"finetuning_task", kOrigin},
    {"auto_map", kClasses},
    {"custom_pipelines", kClasses},
    {"tokenizer_class", "the tokenizer's files are used"},
    {"_attn_implementation", kSame},
    {"_attn_implementation_autoset", kSame},
    {"attn_implementation", kSame},
    {"_experts_implementation", kSame},
    {"_flash_attn_2_enabled", kSame},
    {"use_flash_attn", kSame},
    {"use_cache", kSame},
    {"cache_implementation", kSame},
    {"chunk_size_feed_forward", kSame},
    {"pretraining_tp", kSame},
    {"gradient_checkpointing", kSame},
    {"torchscript", kSame},
    {"use_bfloat16", "the type of the stored weights is used"},
    {"dtype", "the type of the stored weights is used; only float32 has an effect"},
    {"torch_dtype", "the type of the stored weights is used; only float32 has an effect"},
    {"output_attentions", kOutputs},
    {"output_hidden_states", kOutputs},
    {"output_past", kOutputs},
    {"return_dict", kOutputs},
    {"use_return_dict", kOutputs},
    {"keys_to_ignore_at_inference", kOutputs},
    {"task_specific_params", kOtherTask},
    {"qa_dropout", kOtherTask},
    {"summary_activation", kOtherTask},
    {"summary_first_dropout", kOtherTask},
    {"summary_proj_to_labels", kOtherTask},
    {"summary_type", kOtherTask},
    {"summary_use_proj", kOtherTask},
    {"classifier_dropout", kOtherTask},
    {"seq_classif_dropout", kOtherTask},
    {"id2label", "only classifiers have classes"},
    {"label2id", "the inverse of id2label"},
    {"num_labels", "only classifiers have classes"},
    {"problem_type", "only classifiers have classes"},
    {"n_ctx", kDerived},
    {"attention_layers", kDerived},
    {"dense_act_fn", kDerived},
    {"is_gated_act", kDerived},
    {"_sliding_window_pattern", kDerived},
    {"sinusoidal_pos_embds", "initial values of the positions"},
    {"gradient_checkpointing_kwargs", kSame},
    {"num_nextn_predict_layers", "layers that predict further tokens are not used"},
    {"output_router_logits", "only mixtures of experts have a router"},
    {"max_length", kGeneration},
    {"min_length", kGeneration},
    {"do_sample", kGeneration},
    {"temperature", kGeneration},
    {"top_k", kGeneration},
    {"top_p", kGeneration},
    {"prefix", kGeneration},
};

constexpr HarmlessKey kGenerationKeys[] = {
    {"_from_model_config", kOrigin},
    {"transformers_version", kOrigin},
    {"chat_format", kOrigin},
    {"bos_token_id", "prompts are encoded by the tokenizer"},
    {"pad_token_id", "prompts are not padded"},
    {"decoder_start_token_id", "config.json is used"},
    {"max_length", "max_new_tokens is used, by default 20"},
    {"length_penalty", kBeams},
    {"early_stopping", kBeams},
    {"num_beam_groups", kBeams},
    {"diversity_penalty", kBeams},
    {"use_cache", kSpeed},
    {"cache_implementation", kSpeed},
    {"cache_config", kSpeed},
    {"compile_config", kSpeed},
    {"disable_compile", kSpeed},
    {"low_memory", kSpeed},
    {"assistant_confidence_threshold", kSpeed},
    {"assistant_early_exit", kSpeed},
    {"assistant_lookbehind", kSpeed},
    {"is_assistant", kSpeed},
    {"max_matching_ngram_size", kSpeed},
    {"num_assistant_tokens", kSpeed},
    {"num_assistant_tokens_schedule", kSpeed},
    {"prompt_lookup_num_tokens", kSpeed},
    {"target_lookbehind", kSpeed},
    {"output_attentions", kOutputs},
    {"output_hidden_states", kOutputs},
    {"output_logits", kOutputs},
    {"output_scores", kOutputs},
    {"return_dict_in_generate", kOutputs},
    {"renormalize_logits", kSame},
};

constexpr UnsupportedKey kUnsupported[] = {
    {"repetition_penalty", "1"},
    {"no_repeat_ngram_size", "0"},
    {"encoder_repetition_penalty", "1"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"num_beams", "1"},
    {"num_return_sequences", "1"},
    {"min_p", "0"},
    {"top_h", "1"},
    {"typical_p", "1"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"min_length", "0"},
    {"guidance_scale", "1"},
    {"penalty_alpha", "0"},
    {"dola_layers", "null"},
    {"sequence_bias", "null"},
    {"bad_words_ids", "null"},
    {"force_words_ids", "null"},
    {"constraints", "null"},
    {"suppress_tokens", "null"},
    {"begin_suppress_tokens", "null"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
    {"forced_decoder_ids", "null"},
    {"exponential_decay_length_penalty", "null"},
    {"remove_invalid_values", "false"},
    {"watermarking_config", "null"},
    {"stop_strings", "null"},
    {"max_time", "null"},
    {"token_healing", "false"},
};

}  // namespace

std::span<const HarmlessKey> harmless_config_keys() {
  return kConfigKeys;
}

std::span<const HarmlessKey> harmless_generation_keys() {
  return kGenerationKeys;
}

std::span<const UnsupportedKey> unsupported_generation_keys() {
  return kUnsupported;
}

bool contains(std::span<const HarmlessKey> keys, std::string_view key) {
  return std::ranges::any_of(keys, [&](const HarmlessKey& known) { return key == known.key; });
}

}  // namespace lockstep::model
