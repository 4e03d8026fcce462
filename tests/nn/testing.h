// Small models of every family, for the tests of nn.
#pragma once

#include <memory>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "nn/initialize.h"
#include "nn/language_model.h"

namespace lockstep::nn {

/// Two layers each, and what is odd about the family.
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
};

/// With the family's random weights, and biases that are not zero.
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

/// Random ids; labels are the ids, some of them ignored.
inline ForwardInputs small_inputs(const model::ModelConfig& config, int64_t rows, int64_t length) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  ForwardInputs inputs;
  inputs.ids = at::empty({rows, length}, at::kLong).random_(0, config.vocab_size, generator);
  Tensor labels = inputs.ids.clone();
  labels[0][2] = -100;
  inputs.targets = next_tokens(labels);
  if (config.is_encoder_decoder()) {
    inputs.source =
        at::empty({rows, length + 2}, at::kLong).random_(0, config.vocab_size, generator);
    inputs.source_mask = at::ones({rows, length + 2}, at::kBool);
    inputs.source_mask[0][length + 1] = false;
  }
  return inputs;
}

}  // namespace lockstep::nn
