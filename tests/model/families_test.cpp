// Config parsing of the families: defaults, rejected options, windows, rotary positions, published
// sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "model/description.h"
#include "model/family.h"
#include "model/model_config.h"
#include "model/rope.h"

namespace lockstep::model {
namespace families_test {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig parsed(const std::string& type, const std::string& more = "") {
  return parse_model_config(
      fmt::format(R"({{"model_type": "{}"{}{}}})", type, more.empty() ? "" : ", ", more), "c");
}

std::string problems_of(const std::string& type, const std::string& more) {
  try {
    (void)parsed(type, more);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.message();
  }
  return "no error";
}

std::vector<std::string> roles_of(const ModelConfig& config) {
  std::vector<std::string> roles;
  for (const LayerSpec& layer : block_layers(config, 0)) {
    roles.push_back(layer.role);
  }
  return roles;
}

/// Published parameter counts.
TEST(Families, PresetsHaveThePublishedNumbersOfParameters) {
  const std::vector<std::pair<const char*, int64_t>> published = {
      {"gemma-2b", 2506172416},
      {"gemma-7b", 8537680896},
      {"gemma2-2b", 2614341888},
      {"gemma2-9b", 9241705984},
      {"gemma2-27b", 27227128320},
      {"gemma3-270m", 268098176},
      {"gemma3-1b", 999885952},
      {"phi3-mini-4k", 3821079552},
      {"phi4", 14659507200},
      {"pythia-70m", 70426624},
      {"pythia-160m", 162322944},
      {"pythia-410m", 405334016},
      {"pythia-1b", 1011781632},
      {"pythia-1.4b", 1414647808},
      {"pythia-2.8b", 2775208960},
      {"pythia-6.9b", 6857302016},
      {"pythia-12b", 11846072320},
      {"gpt-neo-125m", 125198592},
      {"gpt-neo-1.3b", 1315575808},
      {"olmo2-7b", 7298617344},
      {"glm-4-9b", 9399951360},
      {"qwen1.5-moe-a2.7b", 14315784192},
      {"chatglm3-6b", 6243584000},
      {"gpt-oss-20b", 20914757184},
      {"gpt-oss-120b", 116829156672},
      {"bert-base", 109514298},
      {"roberta-base", 124697433},
      {"distilbert-base", 66985530},
      {"gpt2", 124439808},
      {"gpt2-medium", 354823168},
      {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},
      {"llama2-7b", 6738415616},
      {"llama2-13b", 13015864320},
      {"llama2-70b", 68976648192},
      {"llama3-8b", 8030261248},
      {"llama3-70b", 70553706496},
      {"llama3.2-1b", 1235814400},
      {"tinyllama-1.1b", 1100048384},
      {"mistral-7b", 7241732096},
      {"mixtral-8x7b", 46702792704},
      {"mixtral-8x22b", 140630071296},
      {"qwen2-0.5b", 494032768},
      {"qwen2-1.5b", 1543714304},
      {"qwen2-7b", 7615616512},
      {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},
      {"qwen3-4b", 4022468096},
      {"qwen3-8b", 8190735360},
      {"qwen3-14b", 14768307200},
      {"qwen3-32b", 32762123264},
      {"qwen3-30b-a3b", 30532122624},
      {"qwen3-235b-a22b", 235093634560},
      {"olmoe-1b-7b", 6919161856},
      {"gpt-neox-20b", 20554567680},
      {"gpt-neo-2.7b", 2651307520},
      {"pythia-14m", 14067712},
      {"pythia-31m", 30494720},
      {"bert-large", 335174458},
      {"roberta-large", 355412057},
      {"t5-small", 60506624},
      {"t5-base", 222903552},
      {"t5-large", 737668096},
      {"t5-3b", 2851598336},
      {"t5-11b", 11307321344},
      {"flan-t5-base", 247577856},
      {"flan-t5-large", 783150080},
      {"flan-t5-xl", 2849757184},
      {"flan-t5-xxl", 11135332352},
      {"olmo2-1b", 1484916736},
      {"olmo2-13b", 13716198400},
      {"olmo2-32b", 32234279936},
      {"glm-4-9b-0414", 9400279040},
  };
  for (const auto& [name, count] : published) {
    EXPECT_EQ(parameter_count(preset(name)), count) << name;
  }
}

TEST(Families, EveryPresetOfTheTinyOnesIsSmall) {
  for (const std::string& name : preset_names()) {
    if (name.ends_with("-tiny")) {
      EXPECT_LT(parameter_count(preset(name)), 5000000) << name;
      EXPECT_GT(parameter_count(preset(name)), 2000000) << name;
    }
  }
}

TEST(Families, Gemma) {
  const ModelConfig first = parsed("gemma");
  EXPECT_EQ(first.activation, Activation::kGeluTanh);
  EXPECT_EQ(parsed("gemma", R"("hidden_act": "gelu")").activation, Activation::kGeluTanh);
  EXPECT_EQ(first.embedding_padding_row, 0);
  EXPECT_TRUE(first.tie_word_embeddings);
  EXPECT_DOUBLE_EQ(first.embedding_scale, std::sqrt(3072.0));
  EXPECT_DOUBLE_EQ(first.attention_scale(0), 1 / 16.0);
  EXPECT_EQ(block_layers(first, 0).front().kind, LayerKind::kRmsNormAroundOne);
  EXPECT_EQ(block_layers(first, 0).front().weight().init.kind, Initialization::Kind::kZeros);

  const ModelConfig second = parsed("gemma2", R"("query_pre_attn_scalar": 144)");
  EXPECT_EQ(second.score_cap, 50);
  EXPECT_EQ(second.logit_cap, 30);
  EXPECT_DOUBLE_EQ(second.attention_scale(3), 1 / 12.0);
  EXPECT_EQ(second.sliding_windows[0], 4096);
  EXPECT_EQ(second.sliding_windows[1], 0);
  EXPECT_EQ(parsed("gemma2", R"("attn_logit_softcapping": null)").score_cap, 0);
  EXPECT_THAT(
      roles_of(second),
      ElementsAre(
          "attention_norm",
          "query",
          "key",
          "value",
          "attention_out",
          "attention_out_norm",
          "mlp_norm",
          "mlp_gate",
          "mlp_up",
          "mlp_down",
          "mlp_out_norm"));
}

TEST(Families, Gemma3HasTwoKindsOfRotaryPositions) {
  const ModelConfig old = parsed(
      "gemma3_text",
      R"("rope_theta": 500.0, "rope_local_base_freq": 20.0, "num_hidden_layers": 6,
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 3)");
  EXPECT_THAT(old.sliding_windows, ElementsAre(4096, 4096, 0, 4096, 4096, 0));
  EXPECT_EQ(old.rope_of(2).theta, 500);
  EXPECT_EQ(old.rope_of(2).type, RopeType::kLinear);
  EXPECT_EQ(old.rope_of(0).theta, 20);
  EXPECT_EQ(old.rope_of(0).type, RopeType::kDefault);
  EXPECT_FLOAT_EQ(
      rope_frequencies(old, old.rope_of(0), 9).frequencies[1],
      static_cast<float>(std::pow(20.0, -2.0 / 256)));
  const ModelConfig newer = parsed(
      "gemma3_text",
      R"("num_hidden_layers": 6, "layer_types": ["full_attention", "sliding_attention",
         "sliding_attention", "sliding_attention", "full_attention", "full_attention"],
         "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7.0},
                             "sliding_attention": {"rope_type": "default"}})");
  EXPECT_EQ(newer.rope_of(0).theta, 7);
  EXPECT_EQ(newer.rope_of(1).theta, 1e4);
  EXPECT_EQ(newer.score_cap, 0);
  EXPECT_THAT(
      problems_of("gemma3_text", R"("rope_parameters": {"rope_theta": 5.0})"),
      HasSubstr("requires an object for full_attention"));
  EXPECT_THAT(
      problems_of("gemma3_text", R"("attn_logit_softcapping": 50.0)"),
      HasSubstr("transformers ignores it"));
  EXPECT_THAT(
      problems_of("gemma3_text", R"("use_bidirectional_attention": true)"),
      HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(
      problems_of("gemma2", R"("sliding_window": null)"),
      HasSubstr("layers use sliding attention"));
}

TEST(Families, Phi3PacksProductsAndKnowsOldNamesOfLongrope) {
  const ModelConfig config = parsed(
      "phi3",
      R"("num_key_value_heads": 8, "partial_rotary_factor": 0.75, "resid_pdrop": 0.1,
         "hidden_size": 64, "num_attention_heads": 16, "head_dim": 8, "max_position_embeddings": 64,
         "original_max_position_embeddings": 16, "pad_token_id": 5, "rope_scaling": {"type": "su",
         "short_factor": [1, 2, 3], "long_factor": [2, 3, 4]})");
  EXPECT_EQ(config.rope.type, RopeType::kLongRope);
  EXPECT_EQ(config.rope.original_max_positions, 16);
  EXPECT_EQ(config.rotary_dim(config.rope), 6);
  EXPECT_EQ(config.residual_dropout, 0.1);
  EXPECT_EQ(config.sliding_windows.front(), 0);
  const auto layers = block_layers(config, 1);
  EXPECT_THAT(layers[1].weight().shape, ElementsAre((16 + 2 * 8) * 8, 64));
  EXPECT_EQ(layers[1].out, Dim::kPackedHeads);
  EXPECT_EQ(layers[4].out, Dim::kGatedWidth);
  EXPECT_THAT(
      problems_of("phi3", R"("rope_scaling": {"rope_type": "llama3", "factor": 2,
      "low_freq_factor": 1, "high_freq_factor": 4})"),
      HasSubstr("longrope"));
  EXPECT_THAT(problems_of("phi3", R"("embd_pdrop": 0.1)"), HasSubstr("set it to 0"));
}

TEST(Families, GptNeoXAndGptNeo) {
  const ModelConfig neox = parsed("gpt_neox", R"("rotary_pct": 0.5, "rotary_emb_base": 77)");
  EXPECT_TRUE(neox.parallel_residual);
  EXPECT_FALSE(neox.gated_mlp);
  EXPECT_EQ(neox.rope.theta, 77);
  EXPECT_EQ(neox.rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(parsed("gpt_neox").rope.partial_rotary_factor, 0.25);
  EXPECT_FALSE(parsed("gpt_neox", R"("use_parallel_residual": false)").parallel_residual);
  EXPECT_EQ(head_name(neox), "embed_out.weight");
  EXPECT_EQ(block_layers(neox, 0)[1].out, Dim::kHeadTriples);
  EXPECT_EQ(position_limit(neox), std::nullopt);

  const ModelConfig neo = parsed("gpt_neo");
  EXPECT_EQ(neo.attention_scale(0), 1);
  EXPECT_TRUE(neo.upcast_attention);
  EXPECT_EQ(position_limit(neo), 2048);
  EXPECT_EQ(neo.sliding_windows[0], 0);
  EXPECT_EQ(neo.sliding_windows[23], 256);
  EXPECT_THAT(
      parsed(
          "gpt_neo",
          R"("num_layers": 3, "attention_types": [[["local", "global"], 1], [["local"], 1]])")
          .sliding_windows,
      ElementsAre(256, 0, 256));
  EXPECT_THAT(
      problems_of("gpt_neo", R"("num_layers": 3)"), HasSubstr("does not describe 3 layers"));
  EXPECT_THAT(
      problems_of("gpt_neo", R"("attention_types": [[["near"], 24]])"), HasSubstr("is not a list"));
  EXPECT_THAT(problems_of("llama", R"("rotary_pct": 0.25)"), HasSubstr("rotary_pct"));
}

TEST(Families, OlmoHasNormsBehindSublayersAlone) {
  const ModelConfig olmo2 = parsed("olmo2");
  EXPECT_THAT(
      roles_of(olmo2),
      ElementsAre(
          "query",
          "key",
          "value",
          "query_norm",
          "key_norm",
          "attention_out",
          "attention_out_norm",
          "mlp_gate",
          "mlp_up",
          "mlp_down",
          "mlp_out_norm"));
  EXPECT_EQ(block_layers(olmo2, 0)[3].weight().dims.front(), Dim::kQueries);
  EXPECT_EQ(olmo2.embedding_padding_row, 1);
  EXPECT_EQ(olmo2.rope.theta, 1e4);
  const ModelConfig olmo3 = parsed(
      "olmo3", R"("num_hidden_layers": 4, "rope_scaling": {"rope_type": "yarn", "factor": 8.0})");
  EXPECT_THAT(olmo3.sliding_windows, ElementsAre(4096, 4096, 4096, 0));
  EXPECT_EQ(olmo3.rope_of(0).type, RopeType::kDefault);
  EXPECT_EQ(olmo3.rope_of(0).theta, 5e5);
  EXPECT_EQ(olmo3.rope_of(3).type, RopeType::kYarn);
}

TEST(Families, GlmTurnsNeighboursOfHalfAHead) {
  const ModelConfig glm = parsed("glm");
  EXPECT_TRUE(glm.rope.in_pairs);
  EXPECT_EQ(glm.rotary_dim(glm.rope), 64);
  EXPECT_EQ(glm.kv_heads, 2);
  EXPECT_TRUE(glm.qkv_bias);
  EXPECT_FALSE(glm.attention_out_bias);
  EXPECT_THAT(glm.eos_token_ids, ElementsAre(151329, 151336, 151338));
  EXPECT_THAT(parsed("glm", R"("eos_token_id": 5)").eos_token_ids, ElementsAre(5));
  const auto roles = roles_of(parsed("glm4"));
  EXPECT_EQ(roles.back(), "mlp_out_norm");
  EXPECT_EQ(roles.size(), roles_of(glm).size() + 2);
}

TEST(Families, ChatGlmHasNamesOfItsOwn) {
  const ModelConfig config = parsed(
      "chatglm",
      R"("padded_vocab_size": 100, "num_layers": 3, "num_attention_heads": 8, "kv_channels": 16, "rope_ratio": 500,
         "ffn_hidden_size": 40, "multi_query_attention": true, "multi_query_group_num": 2, "add_qkv_bias": true,
         "seq_length": 131072, "hidden_size": 64)");
  EXPECT_EQ(config.vocab_size, 100);
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.intermediate_size, 40);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(config.rope.theta, 5e6);
  EXPECT_TRUE(config.rope.in_pairs);
  EXPECT_EQ(
      roles_of(config),
      (std::vector<std::string>{
          "attention_norm",
          "query_key_value",
          "attention_out",
          "mlp_norm",
          "mlp_gate_up",
          "mlp_down"}));
  EXPECT_EQ(
      parse_json(to_json(with_vocabulary(config, 128), "float32"), "c").at("padded_vocab_size"),
      128);
  EXPECT_EQ(parsed("chatglm").kv_heads, 32);  // without multi_query_attention
  EXPECT_THAT(problems_of("chatglm", R"("add_bias_linear": true)"), HasSubstr("add_bias_linear"));
  EXPECT_THAT(problems_of("chatglm", R"("rmsnorm": false)"), HasSubstr("rmsnorm"));
  EXPECT_THAT(problems_of("chatglm", R"("pre_seq_len": 128)"), HasSubstr("pre_seq_len"));
  EXPECT_THAT(problems_of("chatglm", R"("kv_channels": 6)"), HasSubstr("kv_channels"));
  EXPECT_THAT(
      problems_of("chatglm", R"("rope_ratio": 50, "_name_or_path": "THUDM/chatglm2-6b-32k")"),
      HasSubstr("convert the folder to glm"));
}

/// Saved configs equal the parsed ones, with the architecture and the type.
TEST(Families, ConfigsAreWrittenAsTheyWereRead) {
  for (const FamilyKeys& family : all_families()) {
    const std::string type(family.name);
    // Its default sizes belong to no model: 96 heads do not divide them.
    const char* sizes = family.family == Family::kGlm4Moe ? R"("head_dim": 128, )" : "";
    const ModelConfig config = parsed(type, sizes + std::string(R"("some_key": [1, 2])"));
    const auto saved = parse_json(to_json(config, "bfloat16"), "c");
    EXPECT_EQ(saved.at("model_type"), type);
    EXPECT_EQ(saved.at("architectures").at(0), std::string(family.architecture));
    EXPECT_EQ(saved.at("some_key").size(), 2U);
    EXPECT_EQ(saved.at("dtype"), "bfloat16");
    ModelConfig changed = config;
    changed.score_cap = 3;
    EXPECT_THROW((void)to_json(changed, "float32"), Error) << type;
  }
}

}  // namespace families_test
}  // namespace lockstep::model
