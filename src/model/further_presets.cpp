// More built-in model configurations.
#include "base/format.h"
#include "model/presets.h"

namespace lockstep::model {
namespace {

/// Keys shared by these families. `more` contains additional keys, each preceded by a comma.
struct Decoder {
  const char* model_type;
  int64_t vocabulary, width, inner, layers, heads, positions;
  const char* more;
};

std::string text_of(const Decoder& sizes) {
  return fmt::format(
      R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "max_position_embeddings": {}{}}})",
      sizes.model_type,
      sizes.vocabulary,
      sizes.width,
      sizes.inner,
      sizes.layers,
      sizes.heads,
      sizes.positions,
      sizes.more);
}

// Models with about 3 million parameters each.
constexpr const char* kTinyGrouped =
    R"(, "num_key_value_heads": 2, "pad_token_id": null, "bos_token_id": 0, "eos_token_id": 0,
"tie_word_embeddings": true)";
constexpr const char* kTinyGemma =
    R"(, "num_key_value_heads": 2, "head_dim": 48, "pad_token_id": null, "bos_token_id": 0, "eos_token_id": 0)";
constexpr const char* kTinyLaterGemma =
    R"(, "num_key_value_heads": 2, "head_dim": 48, "query_pre_attn_scalar": 48, "sliding_window": 128,
"pad_token_id": null, "bos_token_id": 0, "eos_token_id": 0)";

PresetTable gemma() {
  constexpr int64_t kLong = 131072;
  constexpr const char* kLinear =
      R"(, "sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8.0})";
  constexpr const char* kSmall = R"(, "num_key_value_heads": 1, "sliding_window": 512)";
  const auto text_part =
      [&](int64_t width, int64_t inner, int64_t layers, int64_t heads, const std::string& more) {
        const std::string all = more + kLinear;
        return text_of({"gemma3_text", 262208, width, inner, layers, heads, kLong, all.c_str()});
      };
  return {
      {"gemma-tiny", text_of({"gemma", 4096, 192, 512, 5, 4, 512, kTinyGemma})},
      {"gemma-2b",
       text_of({"gemma", 256000, 2048, 16384, 18, 8, 8192, R"(, "num_key_value_heads": 1)"})},
      {"gemma-7b", text_of({"gemma", 256000, 3072, 24576, 28, 16, 8192, ""})},
      {"gemma2-tiny", text_of({"gemma2", 4096, 192, 512, 5, 4, 512, kTinyLaterGemma})},
      {"gemma2-2b", text_of({"gemma2", 256000, 2304, 9216, 26, 8, 8192, ""})},
      {"gemma2-9b",
       text_of({"gemma2", 256000, 3584, 14336, 42, 16, 8192, R"(, "num_key_value_heads": 8)"})},
      {"gemma2-27b",
       text_of(
           {"gemma2",
            256000,
            4608,
            36864,
            46,
            32,
            8192,
            R"(, "num_key_value_heads": 16, "head_dim": 128, "query_pre_attn_scalar": 144)"})},
      {"gemma3-tiny", text_of({"gemma3_text", 4096, 192, 512, 6, 4, 512, kTinyLaterGemma})},
      {"gemma3-270m", text_of({"gemma3_text", 262144, 640, 2048, 18, 4, 32768, kSmall})},
      {"gemma3-1b", text_of({"gemma3_text", 262144, 1152, 6912, 26, 4, 32768, kSmall})},
      {"gemma3-4b", text_part(2560, 10240, 34, 8, "")},
      {"gemma3-12b", text_part(3840, 15360, 48, 16, R"(, "num_key_value_heads": 8)")},
      {"gemma3-27b",
       text_part(
           5376,
           21504,
           62,
           32,
           R"(, "num_key_value_heads": 16, "head_dim": 128, "query_pre_attn_scalar": 168)")},
  };
}

PresetTable phi() {
  return {
      {"phi3-tiny",
       text_of(
           {"phi3",
            4096,
            192,
            512,
            5,
            6,
            512,
            R"(, "num_key_value_heads": 2, "pad_token_id": null, "bos_token_id": 0,
"eos_token_id": 0, "tie_word_embeddings": true, "partial_rotary_factor": 0.75)"})},
      {"phi3-mini-4k",
       text_of({"phi3", 32064, 3072, 8192, 32, 32, 4096, R"(, "sliding_window": 2047)"})},
      {"phi4",
       text_of(
           {"phi3",
            100352,
            5120,
            17920,
            40,
            40,
            16384,
            R"(, "num_key_value_heads": 10, "rope_theta": 250000.0, "bos_token_id": 100257,
"eos_token_id": 100265, "pad_token_id": 100349)"})},
  };
}

PresetTable neo() {
  const auto pythia = [](int64_t layers, int64_t width, int64_t heads, int64_t vocabulary = 50304) {
    return text_of(
        {"gpt_neox", vocabulary, width, 4 * width, layers, heads, 2048, R"(, "eos_token_id": 0)"});
  };
  const auto gpt_neo = [](int64_t layers, int64_t width, int64_t heads) {
    return fmt::format(
        R"({{"model_type": "gpt_neo", "vocab_size": 50257, "hidden_size": {}, "num_layers": {},
"num_heads": {}, "attention_types": [[["global", "local"], {}]]}})",
        width,
        layers,
        heads,
        layers / 2);
  };
  return {
      {"gpt-neox-tiny",
       text_of(
           {"gpt_neox",
            4096,
            192,
            768,
            5,
            6,
            512,
            R"(, "eos_token_id": 0, "tie_word_embeddings": true)"})},
      {"pythia-14m", pythia(6, 128, 4)},
      {"pythia-31m", pythia(6, 256, 8)},
      {"pythia-70m", pythia(6, 512, 8)},
      {"pythia-160m", pythia(12, 768, 12)},
      {"pythia-410m", pythia(24, 1024, 16)},
      {"pythia-1b", pythia(16, 2048, 8)},
      {"pythia-1.4b", pythia(24, 2048, 16)},
      {"pythia-2.8b", pythia(32, 2560, 32)},
      {"pythia-6.9b", pythia(32, 4096, 32, 50432)},
      {"pythia-12b", pythia(36, 5120, 40, 50688)},
      {"gpt-neox-20b", text_of({"gpt_neox", 50432, 6144, 24576, 44, 64, 2048, ""})},
      {"gpt-neo-tiny",
       R"({"model_type": "gpt_neo", "vocab_size": 4096, "hidden_size": 192, "num_layers": 5,
"num_heads": 6, "max_position_embeddings": 512, "window_size": 128, "bos_token_id": 0, "eos_token_id": 0,
"attention_types": [[["global", "local"], 2], [["global"], 1]]})"},
      {"gpt-neo-125m", gpt_neo(12, 768, 12)},
      {"gpt-neo-1.3b", gpt_neo(24, 2048, 16)},
      {"gpt-neo-2.7b", gpt_neo(32, 2560, 20)},
  };
}

PresetTable olmo_and_glm() {
  constexpr const char* kOlmo2 =
      R"(, "rope_theta": 500000.0, "rms_norm_eps": 1e-06, "pad_token_id": 100277, "eos_token_id": 100257)";
  constexpr const char* kOlmo2Grouped =
      R"(, "num_key_value_heads": 8, "rope_theta": 500000.0, "rms_norm_eps": 1e-06,
"pad_token_id": 100277, "eos_token_id": 100257)";
  constexpr const char* kTinyGlm =
      R"(, "num_key_value_heads": 2, "head_dim": 48, "pad_token_id": null, "eos_token_id": 0,
"tie_word_embeddings": true)";
  const auto chatglm = [](int64_t vocabulary,
                          int64_t width,
                          int64_t inner,
                          int64_t layers,
                          int64_t heads,
                          int64_t head_dim,
                          const char* more) {
    return fmt::format(
        R"({{"model_type": "chatglm", "padded_vocab_size": {}, "hidden_size": {}, "ffn_hidden_size": {}, "num_layers": {},
"num_attention_heads": {}, "kv_channels": {}, "multi_query_attention": true, "multi_query_group_num": 2,
"add_qkv_bias": true, "seq_length": 8192, "attention_dropout": 0, "hidden_dropout": 0, {}}})",
        vocabulary,
        width,
        inner,
        layers,
        heads,
        head_dim,
        more);
  };
  return {
      {"olmo2-tiny", text_of({"olmo2", 4096, 192, 512, 5, 6, 512, kTinyGrouped})},
      {"olmo2-1b", text_of({"olmo2", 100352, 2048, 8192, 16, 16, 4096, kOlmo2})},
      {"olmo2-7b", text_of({"olmo2", 100352, 4096, 11008, 32, 32, 4096, kOlmo2})},
      {"olmo2-13b", text_of({"olmo2", 100352, 5120, 13824, 40, 40, 4096, kOlmo2})},
      {"olmo2-32b", text_of({"olmo2", 100352, 5120, 27648, 64, 40, 4096, kOlmo2Grouped})},
      {"olmo3-tiny", text_of({"olmo3", 4096, 192, 512, 5, 6, 512, kTinyGrouped})},
      {"glm-tiny", text_of({"glm", 4096, 192, 512, 5, 4, 512, kTinyGlm})},
      {"glm-4-9b", text_of({"glm", 151552, 4096, 13696, 40, 32, 131072, ""})},
      {"glm4-tiny", text_of({"glm4", 4096, 192, 512, 5, 4, 512, kTinyGlm})},
      {"chatglm-tiny",
       chatglm(4096, 192, 512, 5, 4, 48, R"("eos_token_id": 0, "tie_word_embeddings": true)")},
      {"chatglm3-6b", chatglm(65024, 4096, 13696, 28, 32, 128, R"("eos_token_id": 2)")},
      {"glm-4-9b-0414",
       text_of({"glm4", 151552, 4096, 13696, 40, 32, 32768, R"(, "rms_norm_eps": 1e-05)"})},
  };
}

PresetTable gpt_oss() {
  constexpr const char* kTiny =
      R"(, "num_key_value_heads": 2, "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 2,
"sliding_window": 128, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": true,
"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0})";
  constexpr const char* kTokens =
      R"("bos_token_id": 199998, "eos_token_id": 200002, "pad_token_id": 199999)";
  const auto published = [&](int64_t layers, int64_t experts) {
    const std::string more = fmt::format(R"(, "num_local_experts": {}, {})", experts, kTokens);
    return text_of({"gpt_oss", 201088, 2880, 2880, layers, 64, 131072, more.c_str()});
  };
  return {
      {"gpt-oss-tiny", text_of({"gpt_oss", 4096, 192, 128, 5, 6, 512, kTiny})},
      {"gpt-oss-20b", published(24, 32)},
      {"gpt-oss-120b", published(36, 128)},
  };
}

PresetTable glm4_moe() {
  constexpr const char* kTiny =
      R"(, "num_key_value_heads": 2, "head_dim": 48, "n_routed_experts": 8, "n_group": 2, "topk_group": 1,
"num_experts_per_tok": 2, "moe_intermediate_size": 96, "pad_token_id": null, "eos_token_id": 0,
"tie_word_embeddings": true)";
  constexpr const char* kPublished =
      R"(, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": true, "rope_theta": 1000000.0,
"partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "num_experts_per_tok": 8, "n_shared_experts": 1,
"norm_topk_prob": true, "pad_token_id": 151329, "eos_token_id": [151329, 151336, 151338], )";
  const std::string large =
      kPublished +
      std::string(R"("use_qk_norm": true, "n_routed_experts": 160, "moe_intermediate_size": 1536,
"first_k_dense_replace": 3, "routed_scaling_factor": 2.5)");
  const std::string air =
      kPublished +
      std::string(R"("use_qk_norm": false, "n_routed_experts": 128, "moe_intermediate_size": 1408,
"first_k_dense_replace": 1, "routed_scaling_factor": 1.0)");
  return {
      {"glm4-moe-tiny", text_of({"glm4_moe", 4096, 192, 384, 5, 4, 512, kTiny})},
      {"glm-4.5", text_of({"glm4_moe", 151552, 5120, 12288, 92, 96, 131072, large.c_str()})},
      {"glm-4.5-air", text_of({"glm4_moe", 151552, 4096, 10944, 46, 96, 131072, air.c_str()})},
  };
}

PresetTable encoders() {
  constexpr const char* kSegments = R"(, "type_vocab_size": 2)";
  constexpr const char* kQuiet =
      R"(, "type_vocab_size": 2, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0)";
  constexpr const char* kRoberta = R"(, "type_vocab_size": 1, "layer_norm_eps": 1e-05)";
  constexpr const char* kQuietRoberta =
      R"(, "type_vocab_size": 1, "layer_norm_eps": 1e-05, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0)";
  const auto distilbert = [](int64_t vocabulary,
                             int64_t width,
                             int64_t layers,
                             int64_t heads,
                             const char* more) {
    return fmt::format(
        R"({{"model_type": "distilbert", "vocab_size": {}, "dim": {}, "hidden_dim": {}, "n_layers": {}, "n_heads": {},
"max_position_embeddings": 512{}}})",
        vocabulary,
        width,
        4 * width,
        layers,
        heads,
        more);
  };
  return {
      {"bert-tiny", text_of({"bert", 4096, 192, 768, 5, 4, 512, kQuiet})},
      {"bert-base", text_of({"bert", 30522, 768, 3072, 12, 12, 512, kSegments})},
      {"bert-large", text_of({"bert", 30522, 1024, 4096, 24, 16, 512, kSegments})},
      {"roberta-tiny", text_of({"roberta", 4096, 192, 768, 5, 4, 514, kQuietRoberta})},
      {"roberta-base", text_of({"roberta", 50265, 768, 3072, 12, 12, 514, kRoberta})},
      {"roberta-large", text_of({"roberta", 50265, 1024, 4096, 24, 16, 514, kRoberta})},
      {"distilbert-tiny",
       distilbert(
           4096, 192, 5, 4, R"(, "dropout": 0, "attention_dropout": 0, "seq_classif_dropout": 0)")},
      {"distilbert-base", distilbert(30522, 768, 6, 12, "")},
  };
}

}  // namespace

PresetTable further_presets() {
  PresetTable all = gemma();
  for (PresetTable more : {phi(), neo(), olmo_and_glm(), gpt_oss(), glm4_moe(), encoders()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace lockstep::model
