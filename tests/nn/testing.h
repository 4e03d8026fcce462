// Small models of every family for the tests of nn.
#pragma once

#include <memory>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "nn/initialize.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// Two layers each, with the particular options of the family.
inline constexpr const char* kSmallModels[] = {
    R"({"model_type": "gpt2", "vocab_size": 37, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64,
        "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0, "initializer_range": 0.1})",
    R"({"model_type": "llama", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8, "attention_bias": true, "mlp_bias": true,
        "initializer_range": 0.1})",
    R"({"model_type": "mistral", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 4,
        "tie_word_embeddings": true, "initializer_range": 0.1})",
    R"({"model_type": "qwen2", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "use_sliding_window": true, "sliding_window": 3,
        "max_window_layers": 1, "tie_word_embeddings": true, "initializer_range": 0.1})",
    R"({"model_type": "t5", "vocab_size": 37, "d_model": 24, "d_kv": 7, "d_ff": 40, "num_layers": 1,
        "num_decoder_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
        "dropout_rate": 0, "feed_forward_proj": "gated-gelu"})",
    R"({"model_type": "qwen3", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 64,
        "initializer_range": 0.1})",
    R"({"model_type": "gemma", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.1})",
    R"({"model_type": "gemma2", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 4,
        "query_pre_attn_scalar": 7, "attn_logit_softcapping": 0.7, "final_logit_softcapping": 2,
        "pad_token_id": null, "initializer_range": 0.1})",
    R"({"model_type": "gemma3_text", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "sliding_window": 4,
        "sliding_window_pattern": 2, "query_pre_attn_scalar": 7, "pad_token_id": null, "initializer_range": 0.1})",
    R"({"model_type": "phi3", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "partial_rotary_factor": 0.67, "sliding_window": 5,
        "pad_token_id": null, "initializer_range": 0.1})",
    R"({"model_type": "gpt_neox", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "rotary_pct": 0.67, "initializer_range": 0.1})",
    R"({"model_type": "gpt_neo", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4,
        "max_position_embeddings": 64, "initializer_range": 0.1})",
    R"({"model_type": "olmo2", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": null, "initializer_range": 0.1})",
    R"({"model_type": "olmo3", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 3, "pad_token_id": null,
        "layer_types": ["full_attention", "sliding_attention"], "initializer_range": 0.1})",
    R"({"model_type": "glm", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 12, "pad_token_id": null, "initializer_range": 0.1})",
    R"({"model_type": "glm4", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "pad_token_id": null, "initializer_range": 0.1})",
    R"({"model_type": "chatglm", "padded_vocab_size": 37, "hidden_size": 24, "ffn_hidden_size": 40, "num_layers": 2,
        "num_attention_heads": 4, "multi_query_attention": true, "multi_query_group_num": 2, "kv_channels": 12,
        "add_qkv_bias": true, "attention_dropout": 0, "hidden_dropout": 0, "initializer_range": 0.1})",
    R"({"model_type": "mixtral", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 3, "num_experts_per_tok": 2,
        "sliding_window": 5, "initializer_range": 0.1})",
    R"({"model_type": "qwen3_moe", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 12, "mlp_only_layers": [0], "initializer_range": 0.1})",
    R"({"model_type": "qwen2_moe", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 3, "num_experts_per_tok": 2,
        "moe_intermediate_size": 12, "shared_expert_intermediate_size": 18, "initializer_range": 0.1})",
    R"({"model_type": "glm4_moe", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "n_routed_experts": 6, "n_group": 3,
        "topk_group": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_shared_experts": 2,
        "routed_scaling_factor": 1.5, "use_qk_norm": true, "attention_bias": true, "initializer_range": 0.1})",
    R"({"model_type": "olmoe", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 1, "num_experts": 5, "num_experts_per_tok": 2,
        "pad_token_id": null, "clip_qkv": 2, "initializer_range": 0.1})",
    R"({"model_type": "gpt_oss", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "num_local_experts": 3,
        "num_experts_per_tok": 2, "sliding_window": 4, "swiglu_limit": 0.3, "initializer_range": 0.1})",
    R"({"model_type": "bert", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64, "type_vocab_size": 3, "hidden_dropout_prob": 0,
        "attention_probs_dropout_prob": 0, "initializer_range": 0.1})",
    R"({"model_type": "roberta", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 3, "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 4,
        "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "initializer_range": 0.1})",
    R"({"model_type": "distilbert", "vocab_size": 37, "dim": 24, "hidden_dim": 40, "n_layers": 2, "n_heads": 4,
        "max_position_embeddings": 64, "dropout": 0, "attention_dropout": 0, "initializer_range": 0.1})",
};

/// Initialized as the family, with nonzero biases.
inline std::unique_ptr<LanguageModel> small_model(
    const model::ModelConfig& config, at::ScalarType type = at::kFloat) {
  auto model = make_model(config, type, at::kCPU);
  initialize(*model, 7);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(11);
  const at::NoGradGuard no_gradient;
  model->visit_parameters([&](const std::string& name, at::Tensor& parameter) {
    if (name.ends_with("bias")) {
      parameter.copy_(at::empty(parameter.sizes()).normal_(0, 0.1, generator));
    }
  });
  return model;
}

/// Targets of the labels: the next token, or for an encoder the token itself.
inline Targets predicted(const model::ModelConfig& config, const Tensor& labels) {
  return config.bidirectional ? own_tokens(labels) : next_tokens(labels);
}

/// Random ids; the labels are the ids, some of them ignored.
inline ForwardInputs small_inputs(const model::ModelConfig& config, int64_t rows, int64_t length) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  ForwardInputs inputs;
  inputs.ids = at::empty({rows, length}, at::kLong).random_(0, config.vocab_size, generator);
  Tensor labels = inputs.ids.clone();
  labels[0][2] = -100;
  inputs.targets = predicted(config, labels);
  if (config.is_encoder_decoder()) {
    inputs.source =
        at::empty({rows, length + 2}, at::kLong).random_(0, config.vocab_size, generator);
    inputs.source_mask = at::ones({rows, length + 2}, at::kBool);
    inputs.source_mask[0][length + 1] = false;
  }
  return inputs;
}

}  // namespace lockstep::nn
