// Trained parameters of a LoRA configuration by PEFT's rules.
#include "model/adapters.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::model {
namespace adapters_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ModelConfig llama() {
  return parse_model_config(
      R"({"model_type": "llama", "vocab_size": 31, "hidden_size": 24, "intermediate_size": 44,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2})",
      "test");
}
ModelConfig gpt2() {
  return parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 4})",
      "test");
}

LoraConfig lora(std::vector<std::string> targets) {
  LoraConfig config;
  config.target_modules = parse_module_names("lora.target_modules", std::move(targets));
  return config;
}

std::vector<std::string> layers_of(const Adapters& adapters) {
  std::vector<std::string> names;
  for (const auto& [prefix, adapter] : adapters.of_layers) {
    names.push_back(prefix);
  }
  return names;
}

Adapters resolved(const LoraConfig& config, const ModelConfig& model = llama()) {
  return resolve_adapters(config, model, AdapterOrigin::kNew);
}

std::string refusal(const LoraConfig& config, const ModelConfig& model = llama()) {
  try {
    (void)resolved(config, model);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(Adapters, TheFamilysOwnTargetsStandForNone) {
  EXPECT_THAT(
      layers_of(resolved({}, gpt2())),
      ElementsAre("transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"));
  EXPECT_EQ(resolved({}).of_layers.size(), 6U);
  EXPECT_THAT(resolved({}).config.target_modules.names, ElementsAre("q_proj", "v_proj"));
}

TEST(Adapters, AListIsOfEndsOfNamesAndAStringOfWholeOnes) {
  EXPECT_EQ(resolved(lora({"mlp.up_proj"})).of_layers.size(), 3U);
  EXPECT_THAT(
      layers_of(resolved(lora({".*\\.[01]\\..*\\.(up|down)_proj"}))),
      ElementsAre(
          "model.layers.0.mlp.down_proj",
          "model.layers.0.mlp.up_proj",
          "model.layers.1.mlp.down_proj",
          "model.layers.1.mlp.up_proj"));
  EXPECT_THAT(
      refusal(lora({"up_proj|down_proj"})),
      HasSubstr("does not match the full name of any module"));
}

TEST(Adapters, AllLinearIsEveryLinearButTheHead) {
  LoraConfig config;
  config.targets_all_linear = true;
  const Adapters adapters = resolved(config);
  EXPECT_EQ(adapters.of_layers.size(), 21U);
  EXPECT_EQ(adapters.of_layers.count("lm_head"), 0U);
  EXPECT_FALSE(adapters.config.targets_all_linear);
  // The saved configuration resolves to the same adapters.
  EXPECT_EQ(layers_of(resolved(adapters.config)), layers_of(adapters));
}

TEST(Adapters, LayersAndExclusions) {
  LoraConfig config = lora({"q_proj", "model.layers.0.self_attn.v_proj"});
  config.layers_to_transform = {2};
  // A full name is selected regardless of the layers.
  EXPECT_THAT(
      layers_of(resolved(config)),
      ElementsAre("model.layers.0.self_attn.v_proj", "model.layers.2.self_attn.q_proj"));
  config.layers_pattern = {"layers"};
  EXPECT_EQ(resolved(config).of_layers.size(), 2U);
  config.layers_pattern = {"h"};
  EXPECT_EQ(resolved(config).of_layers.size(), 1U);
  config = lora({"q_proj", "v_proj"});
  config.exclude_modules = {".*\\.0\\..*", {}};
  EXPECT_EQ(resolved(config).of_layers.size(), 4U);
  config.exclude_modules = {"", {"v_proj", "model.layers.1.self_attn.q_proj"}};
  EXPECT_EQ(resolved(config).of_layers.size(), 2U);
  config.exclude_modules = {};
  config.modules_to_save = {"self_attn"};  // trained fully, so modules below it have no adapter
  EXPECT_THAT(refusal(config), HasSubstr("all are excluded"));
  config.layers_to_transform = {3};
  EXPECT_THAT(refusal(config), HasSubstr("layer 3 does not exist in a model of 3 layers"));
}

TEST(Adapters, RanksScalesAndShapes) {
  LoraConfig config = lora({"q_proj", "v_proj", "down_proj"});
  config.r = 4;
  config.lora_alpha = 6;
  config.rank_pattern = {{"down_proj", 2}, {"1.self_attn.v_proj", 3}};
  config.alpha_pattern = {{"self_attn\\.(q|k)_proj", 9}};
  Adapters adapters = resolved(config);
  const auto& of = adapters.of_layers;
  EXPECT_EQ(of.at("model.layers.0.mlp.down_proj").rank, 2);
  EXPECT_EQ(of.at("model.layers.1.self_attn.v_proj").rank, 3);
  EXPECT_EQ(of.at("model.layers.0.self_attn.v_proj").rank, 4);
  EXPECT_DOUBLE_EQ(of.at("model.layers.0.self_attn.q_proj").scale, 9.0 / 4);
  EXPECT_DOUBLE_EQ(of.at("model.layers.0.mlp.down_proj").scale, 3);
  const std::vector<ParameterSpec>& factors = of.at("model.layers.0.mlp.down_proj").parameters;
  EXPECT_THAT(factors[0].shape, ElementsAre(2, 44));
  EXPECT_THAT(factors[0].dims, ElementsAre(Dim::kRank, Dim::kWidth));
  EXPECT_THAT(factors[1].shape, ElementsAre(24, 2));
  config.use_rslora = true;
  EXPECT_DOUBLE_EQ(
      resolved(config).of_layers.at("model.layers.0.self_attn.v_proj").scale, 6 / std::sqrt(4.0));
  // GPT-2's weights are [in, out]; the factors have the usual layout.
  adapters = resolved(lora({"c_attn"}), gpt2());
  EXPECT_THAT(
      adapters.of_layers.at("transformer.h.0.attn.c_attn").parameters[1].shape, ElementsAre(72, 8));
  // For a saved adapter the tensors decide if the order of the patterns was lost.
  EXPECT_EQ(
      resolve_adapters(
          config, llama(), AdapterOrigin::kSaved, {{"model.layers.0.self_attn.q_proj", 7}})
          .of_layers.at("model.layers.0.self_attn.q_proj")
          .rank,
      7);
}

TEST(Adapters, BiasesAndModulesThatAreTrainedWhole) {
  LoraConfig config = lora({"c_attn"});
  config.bias = LoraConfig::Bias::kLoraOnly;
  Adapters adapters = resolved(config, gpt2());
  EXPECT_THAT(
      adapters.trained,
      ElementsAre("transformer.h.0.attn.c_attn.bias", "transformer.h.1.attn.c_attn.bias"));
  EXPECT_THAT(
      adapters.file_names.at("transformer.h.0.attn.c_attn.bias"),
      ElementsAre("base_model.model.transformer.h.0.attn.c_attn.base_layer.bias"));
  config.bias = LoraConfig::Bias::kAll;
  adapters = resolved(config, gpt2());
  EXPECT_EQ(adapters.trained.size(), 2U * 6 + 1);
  EXPECT_THAT(
      adapters.file_names.at("transformer.ln_f.bias"),
      ElementsAre("base_model.model.transformer.ln_f.bias"));
  config = {};
  config.modules_to_save = {"norm"};  // a plain suffix, as in PEFT
  EXPECT_EQ(resolved(config).trained.size(), 7U);
  config.modules_to_save = {"model.norm", "lm_head"};
  EXPECT_THAT(resolved(config).trained, ElementsAre("lm_head.weight", "model.norm.weight"));
  config.modules_to_save = {"wte"};
  config.target_modules.names = {"c_attn"};
  EXPECT_THAT(refusal(config, gpt2()), HasSubstr("lora.ensure_weight_tying=true"));
  config.ensure_weight_tying = true;
  EXPECT_THAT(
      resolved(config, gpt2()).file_names.at("transformer.wte.weight"),
      ElementsAre("base_model.model.transformer.wte.weight", "base_model.model.lm_head.weight"));
}

TEST(Adapters, OfTheEmbeddingAndTheHead) {
  const Adapters apart = resolved(lora({"embed_tokens", "lm_head"}));
  const Adapter& table = apart.of_layers.at("model.embed_tokens");
  EXPECT_EQ(table.parameters[0].name, "model.embed_tokens.lora_embedding_A");
  EXPECT_THAT(table.parameters[0].shape, ElementsAre(8, 31));
  EXPECT_THAT(table.parameters[0].dims, ElementsAre(Dim::kRank, Dim::kVocabulary));
  EXPECT_THAT(table.parameters[1].shape, ElementsAre(24, 8));
  EXPECT_EQ(table.parameters[0].init.kind, Initialization::Kind::kZeros);
  EXPECT_THAT(apart.of_layers.at("lm_head").parameters[1].shape, ElementsAre(31, 8));
  EXPECT_EQ(apart.base_names.at("lm_head.weight"), "base_model.model.lm_head.base_layer.weight");
  // A tied head has its own name.
  const Adapters head = resolved(lora({"lm_head"}), gpt2());
  EXPECT_THAT(layers_of(head), ElementsAre("lm_head"));
  EXPECT_FALSE(head.of_layers.at("lm_head").of_tied_head);
  EXPECT_THAT(
      layers_of(resolved(lora({"lm_head", "wte"}), gpt2())),
      ElementsAre("lm_head", "transformer.wte"));
  LoraConfig config = lora({"lm_head"});
  config.ensure_weight_tying = true;
  const Adapters tied = resolved(config, gpt2());
  EXPECT_THAT(layers_of(tied), ElementsAre("transformer.wte"));
  EXPECT_TRUE(tied.of_layers.at("transformer.wte").of_tied_head);
  EXPECT_EQ(tied.copies.count("base_model.model.lm_head.lora_A.weight"), 1U);
  config.use_dora = true;
  EXPECT_THAT(refusal(config, gpt2()), HasSubstr("remove lora.use_dora"));
  EXPECT_THAT(
      resolved(lora({"wpe"}), gpt2()).of_layers.at("transformer.wpe").parameters[0].dims,
      ElementsAre(Dim::kRank, Dim::kPositions));
}

TEST(Adapters, RowsOfTokens) {
  LoraConfig config = lora({"q_proj"});
  config.trainable_tokens = {{"", {3, 30}}};
  const Adapter rows = resolved(config).of_layers.at("model.embed_tokens");
  EXPECT_THAT(rows.parameters[0].shape, ElementsAre(2, 24));
  EXPECT_FALSE(rows.of_tied_head);
  EXPECT_THAT(
      resolved(config).file_names.at(rows.parameters[0].name),
      ElementsAre("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"));
  const std::string text = to_json(config, false);
  EXPECT_EQ(parse_lora_config(text, "test"), config);
  config.trainable_tokens = {{"embed_tokens", {1}}, {"lm_head", {2, 3}}};
  EXPECT_EQ(parse_lora_config(to_json(config, false), "test"), config);
  EXPECT_EQ(resolved(config).of_layers.at("lm_head").tokens.size(), 2U);
  config.trainable_tokens = {{"", {31}}};
  EXPECT_THAT(refusal(config), HasSubstr("31 is not a token of model.embed_tokens"));
  config.trainable_tokens = {{"", {5, 2, 5}}};
  EXPECT_THAT(refusal(config), HasSubstr("token 5 is listed twice"));
  config.trainable_tokens = {{"embed_tokns", {5}}};
  EXPECT_THAT(refusal(config), HasSubstr("'embed_tokens'"));
  config = lora({"embed_tokens"});
  config.trainable_tokens = {{"", {5}}};
  EXPECT_THAT(
      refusal(config), HasSubstr("also listed in lora.target_modules or lora.modules_to_save"));
  config = lora({"c_attn"});
  config.trainable_tokens = {{"wte", {5}}, {"lm_head", {6}}};
  EXPECT_THAT(refusal(config, gpt2()), HasSubstr("are tied"));
  config.trainable_tokens = {{"wte", {5}}, {"lm_head", {5}}};
  const Adapters tied = resolved(config, gpt2());
  EXPECT_TRUE(tied.of_layers.at("transformer.wte").of_tied_head);
  EXPECT_EQ(tied.of_layers.count("lm_head"), 0U);
}

TEST(Adapters, WhatDoesNotFitIsRefusedWithWhatWould) {
  EXPECT_THAT(
      refusal(lora({"q_proj", "k_porj"})),
      AllOf(HasSubstr("unknown module k_porj"), HasSubstr("'k_proj'"), HasSubstr("all-linear")));
  EXPECT_THAT(refusal(lora({"norm"})), HasSubstr("model.norm is not a linear layer"));
  LoraConfig config = lora({"v_proj"});
  config.r = 13;
  EXPECT_THAT(refusal(config), HasSubstr("use at most 12"));
  config.r = 8;
  config.rank_pattern = {{"v_proj", 2}, {"self_attn.v_proj", 3}};
  EXPECT_THAT(refusal(config), HasSubstr("2 of its patterns match"));
  config.rank_pattern = {{"q_proj", 2}};
  EXPECT_THAT(refusal(config), HasSubstr("'q_proj' matches no module with an adapter"));
  EXPECT_THAT(refusal(lora({"(?i).*V_PROJ"})), HasSubstr("'(?i'"));
  config = lora({".*v_proj"});
  config.layers_to_transform = {0};
  EXPECT_THAT(refusal(config), HasSubstr("is a regular expression"));
  config = {};
  config.layers_pattern = {"layers"};
  EXPECT_THAT(refusal(config), HasSubstr("without lora.layers_to_transform"));
  config = {};
  config.init_lora_weights = "loftq";
  EXPECT_THAT(refusal(config), HasSubstr("loftq is not supported"));
  config.init_lora_weights = "orthogonal";
  config.r = 3;
  EXPECT_THAT(refusal(config), HasSubstr("the rank must be even"));
  config.r = 4;
  config.init_lora_weights = "olora";
  EXPECT_THAT(refusal(config, gpt2()), HasSubstr("[in, out] weights"));
  config = lora({"q_proj", "lm_head"});
  config.init_lora_weights = "pissa";
  EXPECT_THAT(
      refusal(config), HasSubstr("no pissa of rank 8 for lm_head: only the weight of a linear"));
  config = {};
  config.modules_to_save = {"model.nrom"};
  EXPECT_THAT(refusal(config), HasSubstr("unknown module model.nrom"));
}

/// With the original base it would be added to weights with which it was not trained.
TEST(Adapters, ASavedOneThatChangedItsBaseIsRefused) {
  for (const char* init : {"pissa_niter_4", "loftq", "corda", "eva"}) {
    LoraConfig config;
    config.init_lora_weights = init;
    try {
      (void)resolve_adapters(config, llama(), AdapterOrigin::kSaved);
      ADD_FAILURE() << init;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is not supported"));
    }
  }
  LoraConfig config;
  config.init_lora_weights = "orthogonal";
  EXPECT_EQ(resolve_adapters(config, llama(), AdapterOrigin::kSaved).of_layers.size(), 6U);
}

TEST(LoraConfig, IsWrittenAsItWasRead) {
  LoraConfig config = lora({".*_proj"});
  config.r = 4;
  config.lora_alpha = 11.313708498984761;
  config.bias = LoraConfig::Bias::kAll;
  config.rank_pattern = {{"down_proj", 2}};
  config.layers_to_transform = {1, 2};
  config.modules_to_save = {"lm_head"};
  config.use_rslora = true;
  config.init_lora_weights = "gaussian";
  config.base_model_name_or_path = "org/model";
  const std::string text = to_json(config, false);
  EXPECT_EQ(parse_lora_config(text, "test"), config);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json.size(), 41U);
  EXPECT_EQ(json["peft_type"], "LORA");
  EXPECT_EQ(json["init_lora_weights"], "gaussian");
  EXPECT_EQ(text.find("\n}"), text.size() - 2);  // without a trailing newline
  config.lora_alpha = 16;
  EXPECT_THAT(
      to_json(config, true),
      AllOf(HasSubstr("\"lora_alpha\": 16,"), HasSubstr("\"fan_in_fan_out\": true")));
}

TEST(LoraConfig, OtherMathematicsAndUnknownKeysAreRefused) {
  const auto refusal_of = [](const char* text) -> std::string {
    try {
      (void)parse_lora_config(text, "adapter_config.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal_of(R"({"target_modules": "all-linear", "use_qalora": false})"), IsEmpty());
  EXPECT_THAT(refusal_of(R"({"peft_type": "IA3"})"), HasSubstr("IA3"));
  EXPECT_THAT(
      refusal_of(R"({"r": 0, "lora_alhpa": 3, "layer_replication": [[0, 2]], "bias": "some"})"),
      AllOf(
          HasSubstr("r: 0"),
          HasSubstr("'lora_alpha'"),
          HasSubstr("layer_replication"),
          HasSubstr("'some' is not one of")));
}

}  // namespace adapters_test
}  // namespace lockstep::model
