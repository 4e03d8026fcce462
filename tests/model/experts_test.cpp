// Mixtures of experts: parsing of config.json and descriptions.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/description.h"
#include "model/operations.h"

namespace lockstep::model {
namespace experts_test {

ModelConfig parsed(const std::string& text) {
  return parse_model_config("{" + text + "}", "a test");
}

/// Error message of a config text.
std::string problems_of(const std::string& text) {
  try {
    parsed(text);
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

void expect_problem(const std::string& text, const std::string& part) {
  EXPECT_NE(problems_of(text).find(part), std::string::npos) << problems_of(text);
}

TEST(Experts, DefaultsAreThoseOfTheFamilies) {
  const Experts mixtral = parsed(R"("model_type": "mixtral")").experts;
  EXPECT_EQ(mixtral, (Experts{8, 2, 14336, true, 0.001, false, {}}));
  EXPECT_EQ(parsed(R"("model_type": "mixtral")").rope.theta, 1e6);
  const ModelConfig qwen = parsed(R"("model_type": "qwen3_moe")");
  EXPECT_EQ(qwen.experts, (Experts{128, 8, 768, false, 0.001, false, {}}));
  EXPECT_EQ(qwen.head_dim, 2048 / 32);
  EXPECT_TRUE(qwen.head_norms);
  const ModelConfig olmoe = parsed(R"("model_type": "olmoe", "pad_token_id": 1)");
  EXPECT_EQ(olmoe.experts, (Experts{64, 8, 2048, false, 0.01, false, {}}));
  EXPECT_TRUE(olmoe.head_norms);
  EXPECT_EQ(olmoe.kv_heads, 16);
  EXPECT_EQ(olmoe.eos_token_ids, std::vector<int64_t>{50279});
}

TEST(Experts, OneOfQwen2IsForAllTokens) {
  const ModelConfig config = parsed(R"("model_type": "qwen2_moe", "mlp_only_layers": [1])");
  EXPECT_EQ(config.experts, (Experts{60, 4, 1408, false, 0.001, false, {1}, 5632}));
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.attention_out_bias || config.head_norms);
  const auto all = parameters_by_name(config);
  EXPECT_TRUE(all.contains("model.layers.0.mlp.shared_expert.down_proj.weight"));
  EXPECT_EQ(
      all.at("model.layers.0.mlp.shared_expert_gate.weight").shape,
      (std::vector<int64_t>{1, 2048}));
  EXPECT_FALSE(all.contains("model.layers.1.mlp.shared_expert_gate.weight"));
  const ModelConfig slides = parsed(
      R"("model_type": "qwen2_moe", "num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 9,
         "max_window_layers": 3)");
  EXPECT_EQ(slides.sliding_windows, (std::vector<int64_t>{9, 0, 9, 0}));
  expect_problem(
      R"("model_type": "qwen2_moe", "num_hidden_layers": 1, "layer_types": ["sliding_attention"])",
      "use_sliding_window");
}

TEST(Experts, GptOssIsReadAsItsFilesAre) {
  const ModelConfig config = parsed(R"("model_type": "gpt_oss")");
  EXPECT_EQ(config.experts, (Experts{128, 4, 2880, true, 0.001, false, {}, 0, 7, 1.702}));
  EXPECT_TRUE(config.qkv_bias && config.attention_out_bias && config.attention_sinks);
  EXPECT_EQ(config.sliding_windows[0], 128);
  EXPECT_EQ(config.sliding_windows[1], 0);
  EXPECT_EQ(config.rope.type, RopeType::kYarn);
  EXPECT_EQ(config.rope.factor, 32);
  EXPECT_EQ(config.rope.original_max_positions, 4096);
  EXPECT_EQ(config.rope.theta, 1.5e5);
  // Published sizes: 116.8 and 20.9 billion.
  EXPECT_EQ(parameter_count(config), 116829156672);
  EXPECT_EQ(
      parameter_count(
          parsed(R"("model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32)")),
      20914757184);
  EXPECT_EQ(
      parsed(R"("model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"})")
          .quantization,
      std::nullopt);
  expect_problem(
      R"("model_type": "mixtral", "quantization_config": {"quant_method": "mxfp4"})", "mxfp4");
  expect_problem(R"("model_type": "gpt_oss", "hidden_act": "gelu")", "hidden_act");
  expect_problem(R"("model_type": "gpt_oss", "swiglu_limit": 0)", "swiglu_limit");
}

TEST(Experts, OfGptOssLieInStacksOfTheirLayer) {
  const ModelConfig config = parsed(
      R"("model_type": "gpt_oss", "hidden_size": 6, "intermediate_size": 5, "num_attention_heads": 2, "head_dim": 4,
         "num_key_value_heads": 1, "num_hidden_layers": 2, "num_local_experts": 3, "num_experts_per_tok": 2)");
  const auto all = parameters_by_name(config);
  const ParameterSpec& gates = all.at("model.layers.1.mlp.experts.2.gate_up_proj.weight");
  EXPECT_EQ(gates.shape, (std::vector<int64_t>{6, 10}));
  EXPECT_EQ(gates.stacked->name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(gates.stacked->shape, (std::vector<int64_t>{3, 6, 10}));
  EXPECT_EQ(gates.stacked->offset, 120);
  const ParameterSpec& bias = all.at("model.layers.0.mlp.experts.1.down_proj.bias");
  EXPECT_EQ(bias.stacked->name, "model.layers.0.mlp.experts.down_proj_bias");
  EXPECT_EQ(bias.stacked->offset, 6);
  EXPECT_FALSE(bias.decays);
  EXPECT_EQ(all.at("model.layers.0.self_attn.sinks").shape, std::vector<int64_t>{2});
  EXPECT_TRUE(all.at("model.layers.0.self_attn.sinks").decays);
  EXPECT_EQ(all.at("model.layers.0.mlp.router.bias").shape, std::vector<int64_t>{3});
}

TEST(Experts, Glm45ChoosesWithinGroupsAndByCorrectedSigmoids) {
  const ModelConfig plain = parsed(R"("model_type": "glm4_moe", "head_dim": 128)");
  Experts wanted{128, 8, 1408, true, 1e-4, false, {0}, 1408};
  wanted.scores = RouterScores::kSigmoid;
  wanted.corrects_scores = true;
  wanted.weighs_shared = false;
  EXPECT_EQ(plain.experts, wanted);
  EXPECT_EQ(plain.rope.partial_rotary_factor, 0.5);
  EXPECT_FALSE(plain.rope.in_pairs);
  EXPECT_FALSE(plain.qkv_bias || plain.attention_out_bias || plain.head_norms);
  const ModelConfig config = parsed(
      R"("model_type": "glm4_moe", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
         "n_routed_experts": 12, "n_group": 4, "topk_group": 3, "num_experts_per_tok": 9,
         "moe_intermediate_size": 10, "n_shared_experts": 3, "first_k_dense_replace": 2, "num_hidden_layers": 3,
         "norm_topk_prob": false, "routed_scaling_factor": 2.5, "use_qk_norm": true, "attention_bias": true,
         "output_router_logits": true, "num_nextn_predict_layers": 1)");
  EXPECT_EQ(config.experts.dense_layers, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(config.experts.shared_width, 30);
  EXPECT_EQ(config.experts.groups, 4);
  EXPECT_EQ(config.experts.groups_per_token, 3);
  EXPECT_EQ(config.experts.weight_factor, 2.5);
  EXPECT_FALSE(config.experts.normalizes || config.experts.wants_balance);
  EXPECT_TRUE(config.head_norms && config.qkv_bias && !config.attention_out_bias);
  const auto all = parameters_by_name(config);
  EXPECT_TRUE(all.contains("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_EQ(
      all.at("model.layers.2.mlp.shared_experts.down_proj.weight").shape,
      (std::vector<int64_t>{32, 30}));
  EXPECT_FALSE(all.contains("model.layers.2.mlp.shared_experts_gate.weight"));
  const ParameterSpec& correction = all.at("model.layers.2.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(correction.shape, std::vector<int64_t>{12});
  EXPECT_TRUE(correction.is_float32 && !correction.learns && !correction.decays);
  EXPECT_EQ(
      all.at("model.layers.2.mlp.experts.11.up_proj.weight").stacked->name,
      "model.layers.2.mlp.experts.gate_up_proj");
  EXPECT_EQ(
      parsed(
          R"("model_type": "glm4_moe", "head_dim": 8, "num_hidden_layers": 2, "first_k_dense_replace": 2)")
          .experts,
      Experts{});
}

TEST(Experts, GroupsThatGlm45CannotChooseFromAreRefused) {
  const auto refused = [](const char* keys, const char* part) {
    expect_problem(std::string(R"("model_type": "glm4_moe", "head_dim": 128, )") + keys, part);
  };
  refused(R"("n_group": 3)", "n_group");
  refused(R"("n_group": 128)", "experts into equal groups of two or more");
  refused(R"("n_group": 4, "topk_group": 5)", "is 5 and there are 4 groups");
  refused(R"("n_group": 32, "topk_group": 1)", "1 groups have 4 experts");
  refused(R"("routed_scaling_factor": 0)", "routed_scaling_factor");
  refused(R"("n_shared_experts": 0)", "n_shared_experts");
  refused(R"("decoder_sparse_step": 2)", "first_k_dense_replace");
  refused(R"("mlp_only_layers": [1])", "first_k_dense_replace");
  refused(R"("scoring_func": "softmax")", "scoring_func");
  expect_problem(R"("model_type": "deepseek_v3")", "is not supported");
  expect_problem(R"("model_type": "qwen3_moe", "n_routed_experts": 8)", "n_routed_experts");
}

TEST(Experts, EitherNameOfTheirNumberIsRead) {
  for (const char* key : {"num_experts", "num_local_experts"}) {
    for (const char* family : {"mixtral", "qwen3_moe", "olmoe"}) {
      const std::string text =
          "\"model_type\": \"" + std::string(family) + "\", \"" + key + "\": 9";
      EXPECT_EQ(parsed(text).experts.count, 9) << text;
    }
  }
  expect_problem(
      R"("model_type": "mixtral", "num_experts": 9, "num_local_experts": 8)", "num_experts is 9");
}

TEST(Experts, SomeLayersOfQwen3HaveAnMlp) {
  const ModelConfig config = parsed(
      R"("model_type": "qwen3_moe", "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3])");
  EXPECT_EQ(config.experts.dense_layers, (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_TRUE(config.has_experts(1));
  EXPECT_FALSE(config.has_experts(3));
  EXPECT_EQ(parsed(R"("model_type": "qwen3_moe", "num_experts": 0)").experts, Experts{});
}

TEST(Experts, WhatCannotBeComputedIsRefused) {
  expect_problem(
      R"("model_type": "mixtral", "num_experts_per_tok": 9)", "is 9, but there are 8 experts");
  expect_problem(R"("model_type": "mixtral", "num_local_experts": 0)", "num_local_experts");
  expect_problem(R"("model_type": "mixtral", "router_jitter_noise": 0.1)", "router_jitter_noise");
  expect_problem(R"("model_type": "mixtral", "attention_bias": true)", "attention_bias");
  expect_problem(R"("model_type": "mixtral", "clip_qkv": 1)", "clip_qkv");
  expect_problem(R"("model_type": "olmoe", "clip_qkv": 0, "pad_token_id": 1)", "clip_qkv");
  expect_problem(R"("model_type": "qwen3_moe", "moe_intermediate_size": -1)", "moe_intermediate");
  expect_problem(R"("model_type": "llama", "num_experts": 8)", "num_experts");
}

TEST(Experts, AreMatricesOfTheirOwnInFilesOrPlacesInAStack) {
  const ModelConfig config = parsed(
      R"("model_type": "mixtral", "hidden_size": 6, "intermediate_size": 5, "num_attention_heads": 2, "head_dim": 4,
         "num_key_value_heads": 1, "num_hidden_layers": 2, "num_local_experts": 3)");
  const auto parameters = parameters_by_name(config);
  const ParameterSpec& up = parameters.at("model.layers.1.block_sparse_moe.experts.2.w3.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{5, 6}));
  ASSERT_TRUE(up.stacked.has_value());
  EXPECT_EQ(up.stacked->name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(up.stacked->shape, (std::vector<int64_t>{3, 10, 6}));
  EXPECT_EQ(up.stacked->offset, 2 * 60 + 30);
  const ParameterSpec& down = parameters.at("model.layers.1.block_sparse_moe.experts.2.w2.weight");
  EXPECT_EQ(down.stacked->shape, (std::vector<int64_t>{3, 6, 5}));
  EXPECT_EQ(down.stacked->offset, 60);
  EXPECT_EQ(
      parameters.at("model.layers.0.block_sparse_moe.gate.weight").shape,
      (std::vector<int64_t>{3, 6}));
}

struct Sizes {
  const char* preset;
  int64_t parameters;
  double active;  // elements of the matrices that are multiplied with a token, including the head
};

/// Published sizes in billions, total and active: 46.7 and 12.9, 30.5 and 3.3, 235 and 22, 6.9 and
/// 1.3, 355 and 32 (with a multi-token prediction layer), 106 and 12.
TEST(Experts, PresetsHaveThePublishedSizes) {
  for (const Sizes& sizes :
       {Sizes{"mixtral-8x7b", 46'702'792'704, 12.75e9},
        Sizes{"qwen3-30b-a3b", 30'532'122'624, 3.04e9},
        Sizes{"qwen3-235b-a22b", 235'093'634'560, 21.6e9},
        Sizes{"olmoe-1b-7b", 6'919'161'856, 1.18e9},
        Sizes{"glm-4.5", 352'797'829'024, 32.8e9},
        Sizes{"glm-4.5-air", 106'852'251'264, 12.8e9}}) {
    const ModelConfig config = preset(sizes.preset);
    EXPECT_EQ(parameter_count(config), sizes.parameters) << sizes.preset;
    const TokenOperations operations = operations_per_token(config, 1);
    EXPECT_NEAR((operations.projections + operations.head) / 2, sizes.active, 0.01 * sizes.active)
        << sizes.preset;
  }
}

}  // namespace experts_test
}  // namespace lockstep::model
