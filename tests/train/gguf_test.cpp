// GGUF files: supported models and the tensor list in the header. tests/parity/test_gguf.py runs
// them with llama.cpp.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/gguf/families.h"
#include "train/gguf/vocabulary.h"
#include "train/gguf_file.h"

namespace lockstep::train::gguf {
namespace gguf_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLlama =
    R"({"model_type": "llama", "vocab_size": 97, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "head_dim": 64})";

model::ModelConfig llama_with(const std::function<void(model::ModelConfig& config)>& change) {
  model::ModelConfig config = model::parse_model_config(kLlama, "a test");
  change(config);
  return config;
}

std::string refusal(const model::ModelConfig& config) {
  try {
    return architecture_of(config);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Gguf, WhatLlamaCppWouldComputeOtherwiseIsRefused) {
  using model::ModelConfig;
  EXPECT_EQ(refusal(llama_with([](ModelConfig&) {})), "llama");
  EXPECT_THAT(
      refusal(model::preset("t5-tiny")), AllOf(HasSubstr("t5"), HasSubstr("llama, mistral")));
  EXPECT_THAT(
      refusal(llama_with([](ModelConfig& config) {
        config.activation = model::Activation::kRelu;
        config.rope.type = model::RopeType::kDynamic;
        config.head = {.kind = model::HeadSpec::Kind::kClassifier, .labels = {"a", "b"}};
      })),
      AllOf(HasSubstr("activation"), HasSubstr("rope_type"), HasSubstr("classifier")));
  EXPECT_THAT(
      refusal(llama_with([](ModelConfig& config) { config.rope.partial_rotary_factor = 0.5; })),
      HasSubstr("another part of a head"));
  const auto windowed = llama_with([](ModelConfig& config) { config.sliding_windows = {7, 7}; });
  EXPECT_THAT(notes_of(windowed), ElementsAre(HasSubstr("beyond 7 positions")));
}

model::ModelConfig preset_with(
    const char* name, const std::function<void(model::ModelConfig& config)>& change) {
  model::ModelConfig config = model::preset(name);
  change(config);
  return config;
}

TEST(Gguf, MixturesThatLlamaCppHasOtherwiseAreRefused) {
  using model::ModelConfig;
  const auto plain = [](ModelConfig&) {};
  EXPECT_EQ(refusal(preset_with("glm4-moe-tiny", plain)), "glm4moe");
  EXPECT_EQ(refusal(preset_with("qwen2-moe-tiny", plain)), "qwen2moe");
  EXPECT_EQ(refusal(preset_with("gpt-oss-tiny", plain)), "gpt-oss");
  EXPECT_THAT(
      refusal(preset_with("glm4-moe-tiny", [](ModelConfig& config) { config.experts = {}; })),
      HasSubstr("it has no experts"));
  EXPECT_THAT(
      refusal(preset_with(
          "qwen2-moe-tiny",
          [](ModelConfig& config) {
            config.experts.normalizes = true;
            config.experts.dense_layers = {0};
            config.head_dim *= 2;
          })),
      AllOf(
          HasSubstr("norm_topk_prob"),
          HasSubstr("some of its layers have no experts"),
          HasSubstr("is not hidden_size")));
  EXPECT_THAT(
      refusal(preset_with(
          "gpt-oss-tiny",
          [](ModelConfig& config) {
            config.qkv_bias = false;
            config.experts.gate_limit = 5;
            config.sliding_windows.assign(config.sliding_windows.size(), 8);
          })),
      AllOf(
          HasSubstr("attention_bias is false"),
          HasSubstr("swiglu_limit"),
          HasSubstr("sliding windows are on other layers")));
  // OpenAI's files have this setting.
  EXPECT_THAT(notes_of(model::preset("gpt-oss-20b")), ElementsAre(HasSubstr("YaRN's ramp")));
}

std::map<std::string, std::string> types_of(const model::ModelConfig& config, FileType type) {
  std::vector<std::string> notes;
  std::map<std::string, std::string> types;
  for (const Tensor& tensor : tensors_of(config, type, notes)) {
    types[tensor.info.name] = ops::layout_of(tensor.info.type).name;
  }
  EXPECT_EQ(notes.empty(), config.hidden_size % 256 == 0);
  return types;
}

TEST(Gguf, AWidthThatBlocksDoNotDivideTakesTheNextType) {
  const auto whole = types_of(llama_with([](auto&) {}), FileType::kQ4_K_M);
  EXPECT_EQ(whole.at("blk.0.attn_q.weight"), "Q4_K");
  EXPECT_EQ(whole.at("blk.1.attn_v.weight"), "Q6_K");
  EXPECT_EQ(whole.at("output.weight"), "Q6_K");
  EXPECT_EQ(whole.at("output_norm.weight"), "F32");
  const auto narrow = llama_with([](model::ModelConfig& config) {
    config.hidden_size = 96;
    config.head_dim = 20;
    config.tie_word_embeddings = true;
  });
  const auto types = types_of(narrow, FileType::kQ4_K_M);
  EXPECT_EQ(types.at("blk.0.attn_q.weight"), "Q5_0");
  EXPECT_EQ(types.at("blk.0.attn_output.weight"), "F16");  // 80 columns
  EXPECT_EQ(types.at("blk.0.ffn_down.weight"), "Q4_K");    // 512 columns
  EXPECT_EQ(types.at("token_embd.weight"), "Q8_0");
  EXPECT_EQ(types.count("output.weight"), 0U);
}

/// Follows llama.cpp's quantizer, which identifies models by their numbers of blocks and experts.
TEST(Gguf, LargeModelsAndEightExpertsGiveAttentionMoreBits) {
  const auto with_blocks = [](int64_t blocks, int64_t kv_heads) {
    return llama_with([&](model::ModelConfig& config) {
      config.layers = blocks;
      config.kv_heads = kv_heads;
      config.sliding_windows.assign(static_cast<size_t>(blocks), 0);
    });
  };
  const auto large = types_of(with_blocks(80, 2), FileType::kQ4_K_M);
  EXPECT_EQ(large.at("blk.10.attn_v.weight"), "Q5_K");
  EXPECT_EQ(large.at("blk.9.attn_v.weight"), "Q6_K");
  EXPECT_EQ(large.at("blk.10.ffn_down.weight"), "Q4_K");
  EXPECT_EQ(types_of(with_blocks(80, 4), FileType::kQ4_K_M).at("blk.10.attn_v.weight"), "Q4_K");
  EXPECT_EQ(types_of(with_blocks(79, 2), FileType::kQ4_K_M).at("blk.10.attn_v.weight"), "Q4_K");
  const auto mixture = [](int64_t experts) {
    return model::parse_model_config(
        R"({"model_type": "mixtral", "vocab_size": 97, "hidden_size": 256, "intermediate_size": 512,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "num_experts_per_tok": 2, "num_local_experts": )" +
            std::to_string(experts) + "}",
        "a test");
  };
  const auto eight = types_of(mixture(8), FileType::kQ4_K_M);
  EXPECT_EQ(eight.at("blk.0.attn_k.weight"), "Q8_0");
  EXPECT_EQ(eight.at("blk.0.attn_v.weight"), "Q8_0");
  EXPECT_EQ(eight.at("blk.0.attn_output.weight"), "Q5_K");
  EXPECT_EQ(eight.at("blk.0.attn_q.weight"), "Q4_K");
  EXPECT_EQ(types_of(mixture(8), FileType::kQ4_0).at("blk.0.attn_k.weight"), "Q8_0");
  EXPECT_EQ(types_of(mixture(8), FileType::kQ4_0).at("blk.0.attn_output.weight"), "Q4_0");
  EXPECT_EQ(types_of(mixture(4), FileType::kQ4_K_M).at("blk.0.attn_k.weight"), "Q4_K");
}

TEST(Gguf, TheHeaderPlacesEachTensorAtAMultipleOf32) {
  const std::vector<TensorInfo> tensors{
      {"a", {3, 5}, ops::GgufType::kF32}, {"bb", {2, 32}, ops::GgufType::kQ8_0}};
  const Header header = encode_header({{"general.name", "x"}, {"n", 7U}}, tensors);
  EXPECT_EQ(header.bytes.substr(0, 4), "GGUF");
  EXPECT_EQ(header.bytes.size() % 32, 0U);
  EXPECT_EQ(header.offsets, (std::vector<uint64_t>{header.bytes.size(), header.bytes.size() + 64}));
  EXPECT_EQ(header.file_size, header.bytes.size() + 64 + 96);  // 68 bytes plus padding
}

TEST(Gguf, AModelWithoutATokenizerSaysSo) {
  std::vector<std::string> notes;
  const Metadata metadata = tokenizer_metadata(nullptr, llama_with([](auto&) {}), {}, notes);
  EXPECT_EQ(std::get<std::string>(metadata.front().second), "none");
  EXPECT_THAT(notes.front(), HasSubstr("no tokenizer"));
}

}  // namespace gguf_test
}  // namespace lockstep::train::gguf
