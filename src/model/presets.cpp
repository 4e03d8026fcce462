// Built-in models as config.json strings, validated by the same parser as files.
#include "model/presets.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "model/model_config.h"

namespace lockstep::model {
namespace {

std::string gpt2(int64_t width, int64_t layers, int64_t heads) {
  return fmt::format(
      R"({{"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024, "n_embd": {},
"n_layer": {}, "n_head": {}, "n_inner": null, "activation_function": "gelu_new", "resid_pdrop": 0.1,
"embd_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
"bos_token_id": 50256, "eos_token_id": 50256, "tie_word_embeddings": true}})",
      width,
      layers,
      heads);
}

struct Sizes {
  const char* model_type;
  int64_t vocabulary, width, inner, layers, heads, kv_heads, positions;
  double theta;
  bool tied = false;
  std::string more = "";  // additional keys, each preceded by a comma
};

std::string rotary(const Sizes& sizes) {
  return fmt::format(
      R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "hidden_act": "silu",
"max_position_embeddings": {}, "rope_theta": {:.1f}, "initializer_range": 0.02, "tie_word_embeddings": {}{}}})",
      sizes.model_type,
      sizes.vocabulary,
      sizes.width,
      sizes.inner,
      sizes.layers,
      sizes.heads,
      sizes.kv_heads,
      sizes.positions,
      sizes.theta,
      sizes.tied,
      sizes.more);
}

struct T5Sizes {
  int64_t width, head_dim, inner, layers, heads;
};

enum class T5Version {
  kFirst,  // version 1.0: ReLU and a tied head
  k1_1,    // v1.1 and FLAN-T5: a gated GELU and an untied head
};

std::string t5(T5Version version, const T5Sizes& sizes) {
  const bool first = version == T5Version::kFirst;
  return fmt::format(
      R"({{"model_type": "t5", "vocab_size": 32128, "d_model": {}, "d_kv": {}, "d_ff": {}, "num_layers": {},
"num_decoder_layers": {}, "num_heads": {}, "relative_attention_num_buckets": 32,
"relative_attention_max_distance": 128, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0,
"feed_forward_proj": "{}", "is_encoder_decoder": true, "tie_word_embeddings": {}, "n_positions": 512,
"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}})",
      sizes.width,
      sizes.head_dim,
      sizes.inner,
      sizes.layers,
      sizes.layers,
      sizes.heads,
      first ? "relu" : "gated-gelu",
      first);
}

// Models with about 3 million parameters, which train in about a minute on a CPU. Dropout is
// disabled because training is so short.
constexpr const char* kGpt2Tiny =
    R"({"model_type": "gpt2", "vocab_size": 4096, "n_positions": 512, "n_embd": 192, "n_layer": 5,
"n_head": 6, "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
"layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 0,
"tie_word_embeddings": true})";

constexpr const char* kT5Tiny =
    R"({"model_type": "t5", "vocab_size": 4096, "d_model": 192, "d_kv": 32, "d_ff": 384, "num_layers": 3,
"num_decoder_layers": 3, "num_heads": 6, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
"dropout_rate": 0.0, "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0, "feed_forward_proj": "gated-gelu",
"is_encoder_decoder": true, "tie_word_embeddings": true, "n_positions": 512, "pad_token_id": 0, "eos_token_id": 0,
"decoder_start_token_id": 0})";

constexpr const char* kTinyTokens =
    R"(, "rms_norm_eps": 1e-05, "bos_token_id": 0, "eos_token_id": 0)";
constexpr const char* kLlamaTokens =
    R"(, "rms_norm_eps": 1e-05, "bos_token_id": 1, "eos_token_id": 2, "attention_bias": false, "mlp_bias": false)";
constexpr const char* kLlama3Tokens =
    R"(, "rms_norm_eps": 1e-05, "bos_token_id": 128000, "eos_token_id": 128001, "attention_bias": false,
"mlp_bias": false)";
constexpr const char* kLlama32Tokens =
    R"(, "rms_norm_eps": 1e-05, "bos_token_id": 128000, "eos_token_id": 128001, "attention_bias": false,
"mlp_bias": false, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
"high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";
constexpr const char* kMistralTokens =
    R"(, "rms_norm_eps": 1e-05, "bos_token_id": 1, "eos_token_id": 2, "sliding_window": 4096)";
constexpr const char* kQwen2Tokens =
    R"(, "rms_norm_eps": 1e-06, "bos_token_id": 151643, "eos_token_id": 151643, "use_sliding_window": false)";
constexpr const char* kQwen3Tokens =
    R"(, "rms_norm_eps": 1e-06, "bos_token_id": 151643, "eos_token_id": 151645, "use_sliding_window": false,
"attention_bias": false, "head_dim": 128)";
constexpr const char* kQwen3TinyTokens =
    R"(, "rms_norm_eps": 1e-06, "bos_token_id": 0, "eos_token_id": 0, "head_dim": 48)";

constexpr const char* kMixtralTokens =
    R"(, "rms_norm_eps": 1e-05, "bos_token_id": 1, "eos_token_id": 2, "sliding_window": null,
"num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02)";
constexpr const char* kQwen3MoeTokens =
    R"(, "rms_norm_eps": 1e-06, "bos_token_id": 151643, "eos_token_id": 151645, "use_sliding_window": false,
"attention_bias": false, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
"router_aux_loss_coef": 0.001, "decoder_sparse_step": 1, "mlp_only_layers": [], )";
constexpr const char* kOlmoeTokens =
    R"(, "rms_norm_eps": 1e-05, "pad_token_id": 1, "eos_token_id": 50279, "attention_bias": false,
"clip_qkv": null, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false, "router_aux_loss_coef": 0.01)";
// Experts are small so that these models train as fast as the other tiny models.
constexpr const char* kTinyMixtral =
    R"(, "rms_norm_eps": 1e-05, "bos_token_id": 0, "eos_token_id": 0, "num_local_experts": 4,
"num_experts_per_tok": 2)";
constexpr const char* kTinyQwen3Moe =
    R"(, "rms_norm_eps": 1e-06, "bos_token_id": 0, "eos_token_id": 0, "head_dim": 48, "num_experts": 8,
"num_experts_per_tok": 2, "norm_topk_prob": true, "moe_intermediate_size": 128)";
constexpr const char* kTinyQwen2Moe =
    R"(, "rms_norm_eps": 1e-06, "bos_token_id": 0, "eos_token_id": 0, "num_experts": 8, "num_experts_per_tok": 2,
"moe_intermediate_size": 128, "shared_expert_intermediate_size": 128)";
constexpr const char* kTinyOlmoe =
    R"(, "rms_norm_eps": 1e-05, "pad_token_id": null, "eos_token_id": 0, "num_experts": 8,
"num_experts_per_tok": 2)";

PresetTable first_presets() {
  return {
      {"gpt2-tiny", kGpt2Tiny},
      {"gpt2", gpt2(768, 12, 12)},
      {"gpt2-medium", gpt2(1024, 24, 16)},
      {"gpt2-large", gpt2(1280, 36, 20)},
      {"gpt2-xl", gpt2(1600, 48, 25)},
      {"llama-tiny", rotary({"llama", 4096, 192, 512, 5, 6, 2, 512, 1e4, true, kTinyTokens})},
      {"llama-160m",
       rotary({"llama", 32000, 768, 2048, 12, 12, 12, 2048, 1e4, false, kLlamaTokens})},
      {"tinyllama-1.1b",
       rotary({"llama", 32000, 2048, 5632, 22, 32, 4, 2048, 1e4, false, kLlamaTokens})},
      {"llama2-7b",
       rotary({"llama", 32000, 4096, 11008, 32, 32, 32, 4096, 1e4, false, kLlamaTokens})},
      {"llama2-13b",
       rotary({"llama", 32000, 5120, 13824, 40, 40, 40, 4096, 1e4, false, kLlamaTokens})},
      {"llama2-70b",
       rotary({"llama", 32000, 8192, 28672, 80, 64, 8, 4096, 1e4, false, kLlamaTokens})},
      {"llama3-8b",
       rotary({"llama", 128256, 4096, 14336, 32, 32, 8, 8192, 5e5, false, kLlama3Tokens})},
      {"llama3-70b",
       rotary({"llama", 128256, 8192, 28672, 80, 64, 8, 8192, 5e5, false, kLlama3Tokens})},
      {"llama3.2-1b",
       rotary({"llama", 128256, 2048, 8192, 16, 32, 8, 131072, 5e5, true, kLlama32Tokens})},
      {"mistral-tiny", rotary({"mistral", 4096, 192, 512, 5, 6, 2, 512, 1e4, true, kTinyTokens})},
      {"mistral-7b",
       rotary({"mistral", 32000, 4096, 14336, 32, 32, 8, 32768, 1e4, false, kMistralTokens})},
      {"qwen2-tiny", rotary({"qwen2", 4096, 192, 512, 5, 6, 2, 512, 1e6, true, kTinyTokens})},
      {"qwen2-0.5b",
       rotary({"qwen2", 151936, 896, 4864, 24, 14, 2, 131072, 1e6, true, kQwen2Tokens})},
      {"qwen2-1.5b",
       rotary({"qwen2", 151936, 1536, 8960, 28, 12, 2, 131072, 1e6, true, kQwen2Tokens})},
      {"qwen2-7b",
       rotary({"qwen2", 152064, 3584, 18944, 28, 28, 4, 131072, 1e6, false, kQwen2Tokens})},
      {"qwen3-tiny", rotary({"qwen3", 4096, 192, 512, 5, 6, 2, 512, 1e6, true, kQwen3TinyTokens})},
      {"qwen3-0.6b",
       rotary({"qwen3", 151936, 1024, 3072, 28, 16, 8, 40960, 1e6, true, kQwen3Tokens})},
      {"qwen3-1.7b",
       rotary({"qwen3", 151936, 2048, 6144, 28, 16, 8, 40960, 1e6, true, kQwen3Tokens})},
      {"qwen3-4b",
       rotary({"qwen3", 151936, 2560, 9728, 36, 32, 8, 40960, 1e6, true, kQwen3Tokens})},
      {"qwen3-8b",
       rotary({"qwen3", 151936, 4096, 12288, 36, 32, 8, 40960, 1e6, false, kQwen3Tokens})},
      {"qwen3-14b",
       rotary({"qwen3", 151936, 5120, 17408, 40, 40, 8, 40960, 1e6, false, kQwen3Tokens})},
      {"qwen3-32b",
       rotary({"qwen3", 151936, 5120, 25600, 64, 64, 8, 40960, 1e6, false, kQwen3Tokens})},
      {"mixtral-tiny", rotary({"mixtral", 4096, 192, 256, 5, 6, 2, 512, 1e6, true, kTinyMixtral})},
      {"mixtral-8x7b",
       rotary({"mixtral", 32000, 4096, 14336, 32, 32, 8, 32768, 1e6, false, kMixtralTokens})},
      {"mixtral-8x22b",
       rotary({"mixtral", 32768, 6144, 16384, 56, 48, 8, 65536, 1e6, false, kMixtralTokens})},
      {"qwen3-moe-tiny",
       rotary({"qwen3_moe", 4096, 192, 512, 5, 6, 2, 512, 1e6, true, kTinyQwen3Moe})},
      {"qwen3-30b-a3b",
       rotary(
           {"qwen3_moe",
            151936,
            2048,
            6144,
            48,
            32,
            4,
            40960,
            1e6,
            false,
            kQwen3MoeTokens + std::string(R"("moe_intermediate_size": 768)")})},
      {"qwen3-235b-a22b",
       rotary(
           {"qwen3_moe",
            151936,
            4096,
            12288,
            94,
            64,
            4,
            40960,
            1e6,
            false,
            kQwen3MoeTokens + std::string(R"("moe_intermediate_size": 1536)")})},
      {"qwen2-moe-tiny",
       rotary({"qwen2_moe", 4096, 192, 512, 5, 6, 2, 512, 1e4, true, kTinyQwen2Moe})},
      {"qwen1.5-moe-a2.7b",
       rotary({"qwen2_moe", 151936, 2048, 5632, 24, 16, 16, 8192, 1e6, false, ""})},
      {"olmoe-tiny", rotary({"olmoe", 4096, 192, 128, 5, 6, 6, 512, 1e4, true, kTinyOlmoe})},
      {"olmoe-1b-7b",
       rotary({"olmoe", 50304, 2048, 1024, 16, 16, 16, 4096, 1e4, false, kOlmoeTokens})},
      {"t5-tiny", kT5Tiny},
      {"t5-small", t5(T5Version::kFirst, {512, 64, 2048, 6, 8})},
      {"t5-base", t5(T5Version::kFirst, {768, 64, 3072, 12, 12})},
      {"t5-large", t5(T5Version::kFirst, {1024, 64, 4096, 24, 16})},
      {"t5-3b", t5(T5Version::kFirst, {1024, 128, 16384, 24, 32})},
      {"t5-11b", t5(T5Version::kFirst, {1024, 128, 65536, 24, 128})},
      {"flan-t5-small", t5(T5Version::k1_1, {512, 64, 1024, 8, 6})},
      {"flan-t5-base", t5(T5Version::k1_1, {768, 64, 2048, 12, 12})},
      {"flan-t5-large", t5(T5Version::k1_1, {1024, 64, 2816, 24, 16})},
      {"flan-t5-xl", t5(T5Version::k1_1, {2048, 64, 5120, 24, 32})},
      {"flan-t5-xxl", t5(T5Version::k1_1, {4096, 64, 10240, 24, 64})},
  };
}

const PresetTable& table() {
  static const PresetTable presets = [] {
    PresetTable all = first_presets();
    for (auto& preset : further_presets()) {
      all.push_back(std::move(preset));
    }
    return all;
  }();
  return presets;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : table()) {
    names.push_back(name);
  }
  return names;
}

ModelConfig preset(std::string_view name) {
  for (const auto& [known, text] : table()) {
    if (known == name) {
      return parse_model_config(text, fmt::format("preset {}", name));
    }
  }
  const auto names = preset_names();
  throw Error(
      ErrorKind::kConfig,
      fmt::format("unknown preset \"{}\".{}", name, did_you_mean(name, names)),
      fmt::format("the presets are {}", fmt::join(names, ", ")));
}

}  // namespace lockstep::model
