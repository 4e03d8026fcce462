// All families with all known keys: a value that would change the model is supported or rejected,
// never ignored; sizes and fractions have limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "model/family.h"

namespace lockstep::model {
namespace keys_test {

using nlohmann::json;
using testing::HasSubstr;

/// Parses the config of a family with keys; returns the config or the error.
std::pair<ModelConfig, std::string> parse(std::string_view family, json keys) {
  keys["model_type"] = std::string(family);
  if (family == "glm4_moe") {
    keys.emplace("head_dim", 128);  // the default head size, 42, has an odd half
  }
  try {
    ModelConfig config = parse_model_config(keys.dump(), "x/config.json");
    config.json.clear();
    return {config, ""};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.message(), HasSubstr("x/config.json does not describe a valid model"));
    return {ModelConfig{}, error.message()};
  }
}

std::string problem(std::string_view family, const json& keys) {
  const auto [config, text] = parse(family, keys);
  return text.empty() ? "no error" : text;
}

struct Mathematical {
  const char* key;
  json neutral;
  json other;
};

const std::vector<Mathematical>& mathematical() {
  static const std::vector<Mathematical> keys = {
      {"attn_logit_softcapping", nullptr, 30.0},
      {"final_logit_softcapping", nullptr, 20.0},
      {"logit_softcapping", nullptr, 30.0},
      {"query_pre_attn_scalar", nullptr, 144},
      {"attention_multiplier", nullptr, 0.0078125},
      {"logit_scale", 1, 0.0625},
      {"logits_scaling", 1, 8},
      {"embedding_multiplier", 1, 12},
      {"residual_multiplier", 1, 0.22},
      {"scale_emb", 1, 12},
      {"scale_depth", nullptr, 1.4},
      {"use_qk_norm", false, true},
      {"qk_norm", false, true},
      {"qk_layernorm", false, true},
      {"clip_qkv", nullptr, 8.0},
      {"use_bidirectional_attention", false, true},
      {"alibi", false, true},
      {"use_alibi", false, true},
      {"add_cross_attention", false, true},
      {"parallel_attn", false, true},
      {"rotary_pct", nullptr, 0.5},
      {"rotary_emb_base", nullptr, 5000},
      {"rope_local_base_freq", nullptr, 5000},
      {"sliding_window_pattern", nullptr, 2},
      {"attention_types", nullptr, {{{"global"}, 24}}},
      {"num_local_experts", nullptr, 16},
      {"num_experts", nullptr, 16},
      {"n_routed_experts", nullptr, 16},
      {"use_mrope", false, true},
      {"no_rope_layers", nullptr, {1, 0}},
      {"attention_chunk_size", nullptr, 8192},
      {"rope_interleave", false, true},
      {"rope_interleaved", false, true},
      {"pruned_heads", json::object(), {{"0", {1}}}},
  };
  return keys;
}

TEST(Keys, ThatChangeTheMathematicsAreReadOrRefusedByEveryFamily) {
  int read = 0, refused = 0;
  for (const FamilyKeys& family : all_families()) {
    const ModelConfig plain = parse(family.name, json::object()).first;
    for (const auto& [key, neutral, other] : mathematical()) {
      const std::string place = fmt::format("{}: {}", family.name, key);
      const bool needs_number = family.family == Family::kGemma3 && place.ends_with("_pattern");
      EXPECT_EQ(parse(family.name, {{key, neutral}}).second.empty(), !needs_number) << place;
      const auto [config, text] = parse(family.name, {{key, other}});
      if (text.empty()) {
        EXPECT_NE(config, plain) << place << " is passed over";
        ++read;
      } else {
        EXPECT_THAT(text, HasSubstr(std::string(key) + ": ")) << place;
        ++refused;
      }
    }
  }
  EXPECT_GE(read, 12);  // for the families created with them
  EXPECT_GT(refused, 700);
}

TEST(Keys, OfEncodersAndDecodersAreOfTheirFamiliesAlone) {
  for (const FamilyKeys& family : all_families()) {
    const bool is_t5 = family.family == Family::kT5;
    EXPECT_EQ(parse(family.name, {{"is_encoder_decoder", is_t5}}).second, "") << family.name;
    EXPECT_THAT(
        problem(family.name, {{"is_encoder_decoder", !is_t5}}), HasSubstr("is_encoder_decoder"));
    const bool is_neox = family.family == Family::kGptNeoX;
    const auto [config, text] = parse(family.name, {{"use_parallel_residual", true}});
    EXPECT_EQ(text.empty(), is_neox) << family.name;
    EXPECT_EQ(config.parallel_residual, is_neox) << family.name;
    const auto [other, told] = parse(family.name, {{"use_parallel_residual", false}});
    EXPECT_EQ(told, "") << family.name;
    EXPECT_FALSE(other.parallel_residual) << family.name;
  }
}

/// Values that are not valid sizes for any key.
const std::vector<json>& no_sizes() {
  static const std::vector<json> values = {
      0, -1, 1.5, "12", true, json::array(), int64_t{1} << 40, 1e99, uint64_t{1} << 63};
  return values;
}

TEST(Keys, OfSizesHaveLimitsInEveryFamily) {
  for (const FamilyKeys& family : all_families()) {
    for (const char* key :
         {family.vocab_size,
          family.hidden_size,
          family.layers,
          family.heads,
          family.max_positions,
          family.intermediate_size}) {
      for (const json& value : no_sizes()) {
        EXPECT_THAT(
            problem(family.name, {{key, value}}),
            HasSubstr(fmt::format("{}: {} is not an integer from 1 to", key, value.dump())))
            << family.name;
      }
    }
    EXPECT_THAT(
        problem(family.name, {{family.hidden_size, nullptr}}), HasSubstr("null is not an integer"))
        << family.name;
  }
}

TEST(Keys, OfSharesHaveLimitsInEveryFamily) {
  for (const FamilyKeys& family : all_families()) {
    std::vector<std::string> shares = {family.attention_dropout};
    for (const char* key : {family.embedding_dropout, family.residual_dropout}) {
      if (key != nullptr) {
        shares.emplace_back(key);
      }
    }
    for (const std::string& key : shares) {
      for (const json& value : {json(1), json(-0.1), json("0.1"), json(true)}) {
        EXPECT_THAT(
            problem(family.name, {{key, value}}),
            HasSubstr(fmt::format("{}: {} is not a number from 0 to 0.999", key, value.dump())))
            << family.name;
      }
    }
    EXPECT_THAT(
        problem(family.name, {{family.norm_eps, -1e-6}}),
        HasSubstr(fmt::format("{}: -1e-06 is not a number from 0 to 1", family.norm_eps)))
        << family.name;
    EXPECT_THAT(
        problem(family.name, {{"initializer_range", -0.02}}), HasSubstr("initializer_range"))
        << family.name;
    EXPECT_THAT(
        problem(family.name, {{"tie_word_embeddings", "yes"}}),
        HasSubstr("tie_word_embeddings: \"yes\" is not true or false"))
        << family.name;
    EXPECT_THAT(
        problem(family.name, {{"eos_token_id", "</s>"}}), HasSubstr("eos_token_id: \"</s>\""))
        << family.name;
  }
}

TEST(Keys, OfAnActivationThatThereIsNotNameTheNearest) {
  for (const FamilyKeys& family : all_families()) {
    if (family.family == Family::kT5) {  // feed_forward_proj, which model_config_test.cpp tests
      continue;
    }
    EXPECT_THAT(
        problem(family.name, {{family.activation, "gelu_nwe"}}),
        AllOf(
            HasSubstr(fmt::format("{}: ", family.activation)),
            HasSubstr("Did you mean 'gelu_new'?")))
        << family.name;
  }
}

TEST(Keys, ThatAFamilyDoesNotHaveAreRefusedWithWhatItHas) {
  struct Refusal {
    const char* family;
    json keys;
    const char* said;
  };
  const std::vector<Refusal> refusals = {
      {"llama",
       {{"num_attention_heads", 6}, {"hidden_size", 64}},
       "64 is not divisible by num_attention_heads = 6"},
      {"llama",
       {{"num_attention_heads", 32}, {"num_key_value_heads", 5}},
       "num_key_value_heads: 5 does not divide the 32 attention heads"},
      {"llama", {{"layer_types", json::array({"full_attention"})}}, "layer_types"},
      {"llama", {{"pad_token_id", 32000}}, "32000 is not a row of an embedding with 32000 rows"},
      {"mistral", {{"attention_bias", true}}, "attention_bias: true is not supported by mistral"},
      {"mistral", {{"mlp_bias", true}}, "mlp_bias: true is not supported by mistral"},
      {"qwen2", {{"mlp_bias", true}}, "mlp_bias: true is not supported by qwen2"},
      {"qwen3", {{"mlp_bias", true}}, "mlp_bias: true is not supported by qwen3"},
      {"mixtral", {{"attention_bias", true}}, "attention_bias: true is not supported by mixtral"},
      {"olmoe", {{"clip_qkv", 0}}, "0 would make every query, key and value zero"},
      {"gemma", {{"mlp_bias", true}}, "mlp_bias"},
      {"gemma2", {{"query_pre_attn_scalar", 0}}, "query_pre_attn_scalar: 0 is not a number"},
      {"gemma2", {{"final_logit_softcapping", -30}}, "final_logit_softcapping: -30 is not"},
      {"gemma3_text", {{"attn_logit_softcapping", 50}}, "attn_logit_softcapping"},
      {"gemma3_text", {{"sliding_window_pattern", 0}}, "sliding_window_pattern: 0 is not"},
      {"gemma3_text", {{"sliding_window", nullptr}}, "is null, but some layers use sliding"},
      {"phi3", {{"attention_bias", true}}, "attention_bias: true is not supported by phi3"},
      {"phi3", {{"embd_pdrop", 0.1}}, "transformers ignores it: set it to 0"},
      {"phi3",
       {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}},
       "phi3 only supports \"default\" and \"longrope\""},
      {"gpt_neo", {{"attention_types", {{{"global"}, 3}}}}, "attention_types"},
      {"gpt_neo", {{"attention_types", "global"}}, "attention_types: \"global\""},
      {"gpt_neo",
       {{"num_layers", 2},
        {"attention_types", {{{"global", "local"}, 1}}},
        {"attention_layers", {"local", "local"}}},
       "attention_layers: [\"local\",\"local\"] does not match attention_types"},
      {"gpt_neo", {{"window_size", 0}}, "window_size: 0 is not an integer from 1"},
      {"gpt_oss", {{"hidden_act", "gelu"}}, "set it to \"silu\""},
      {"gpt_oss", {{"swiglu_limit", 0}}, "swiglu_limit: 0 is not a number"},
      {"olmo2", {{"mlp_bias", true}}, "mlp_bias"},
      {"glm", {{"mlp_bias", true}}, "mlp_bias"},
      {"chatglm", {{"post_layer_norm", false}}, "chatglm only supports true"},
      {"chatglm", {{"add_bias_linear", true}}, "chatglm only supports false"},
      {"chatglm", {{"pre_seq_len", 128}}, "pre_seq_len: is not supported (only null or 0)"},
      {"chatglm", {{"quantization_bit", 4}}, "quantization_bit: is not supported"},
      {"chatglm", {{"kv_channels", 6}}, "is 6; it must be a multiple of 4"},
      {"bert",
       {{"is_decoder", true}},
       "is_decoder: true is not supported: the model must be an encoder"},
      {"bert",
       {{"position_embedding_type", "relative_key"}},
       "\"relative_key\" is not supported, only \"absolute\" is"},
      {"bert", {{"type_vocab_size", 0}}, "type_vocab_size: 0 is not an integer from 1"},
      {"bert", {{"classifier_dropout", 1}}, "classifier_dropout: 1 is not a number"},
      {"roberta",
       {{"max_position_embeddings", 2}, {"pad_token_id", 1}},
       "2 leaves no positions: they start after pad_token_id = 1"},
      {"distilbert", {{"seq_classif_dropout", 1}}, "seq_classif_dropout: 1 is not a number"},
      {"t5", {{"relative_attention_num_buckets", 0}}, "relative_attention_num_buckets: 0"},
      {"t5", {{"num_decoder_layers", 0}}, "num_decoder_layers: 0 is not an integer from 1"},
      {"gpt2", {{"quantization_config", "int8"}}, "\"int8\" is not an object"},
      {"gpt2",
       {{"quantization_config", {{"quant_method", "gptq"}}}},
       "\"gptq\" is not supported; only bitsandbytes is"},
      {"llama", {{"rope_scaling", 2}}, "rope_scaling: 2 is not an object"},
      {"llama", {{"rope_theta", 0}}, "rope_theta: 0 is not a number"},
  };
  for (const auto& [family, keys, said] : refusals) {
    EXPECT_THAT(problem(family, keys), HasSubstr(said)) << family << " " << keys;
  }
}

TEST(Keys, OfAFamilyThatThereIsNot) {
  EXPECT_THAT(problem("lama", json::object()), HasSubstr("Did you mean 'llama'?"));
  EXPECT_THAT(
      problem("deepseek_v3", json::object()), HasSubstr("\"deepseek_v3\" is not supported"));
  EXPECT_THAT(
      problem("", json::object()), AllOf(HasSubstr("model_type"), HasSubstr("use one of gpt2, ")));
}

}  // namespace keys_test
}  // namespace lockstep::model
