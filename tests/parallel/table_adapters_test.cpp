// Plan tests of adapters on the embedding and the head, separate and tied, and of trained rows of
// single tokens.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/plans.h"
#include "parallel/products.h"

namespace lockstep::parallel {
namespace table_adapters_test {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kAllow = ZeroInPipeline::kAllow;

/// Plans with every axis alone and combined. The tables are sharded by tensor parallelism, gathered
/// by ZeRO, and are at both ends of a pipeline.
std::vector<PlanCase> plans_of_tables(Recompute kind = Recompute::kSelective) {
  return {
      {{.data = 2}, 2, {.zero_stage = 1}},
      {{.data = 3}, 1, {.zero_stage = 3}},
      {{.tensor = 2}, 2},
      {{.tensor = 3}, 1, {.recompute = {kind}, .sequence_sharding = kShards}},
      {{.context = 2}, 1},
      {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2}, 2, {.pipeline = {.schedule = "zb-v"}}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      {{.context = 2, .tensor = 2}, 2, {.zero_stage = 2, .sequence_sharding = kShards}},
      {{.pipeline = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}},
      {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 3, .zero_in_pipeline = kAllow}},
      {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
  };
}

void expect_adapters(
    const std::string& json,
    const std::vector<std::string>& targets,
    model::LoraConfig config = {},
    const std::vector<PlanCase>& plans = plans_of_tables()) {
  config.r = 3;
  config.lora_alpha = 4.5;
  config.lora_dropout = 0.2;
  config.init_lora_weights = "false";
  config.target_modules.names = targets;
  const testing::Adapt adapt = [config](nn::LanguageModel& model) {
    nn::add_adapters(
        model, model::resolve_adapters(config, model.config(), model::AdapterOrigin::kNew));
  };
  expect_table(with_five_layers(json), plans, [&](ModelSpec& spec) {
    spec.adapt = adapt;
    spec.fill = testing::fill_adapted(spec.config, adapt);
  });
}

model::LoraConfig dora() {
  model::LoraConfig config;
  config.use_dora = true;
  return config;
}

model::LoraConfig tied() {
  model::LoraConfig config;
  config.ensure_weight_tying = true;
  return config;
}

model::LoraConfig rows(std::map<std::string, std::vector<int64_t>> tokens) {
  model::LoraConfig config;
  config.trainable_tokens = std::move(tokens);
  return config;
}

TEST(PlanTable, AdaptersOfEmbeddingAndHead) {
  expect_adapters(kOddLlama, {"q_proj", "embed_tokens", "lm_head"});
  expect_adapters(kOddGpt2, {"c_fc", "wte", "wpe"});
  expect_adapters(kOddGpt2, {"lm_head"});
  expect_adapters(kOddQwen2, {"v_proj", "embed_tokens", "lm_head"});
}

TEST(PlanTable, AdaptersOfTiedEmbeddings) {
  expect_adapters(kOddGpt2, {"lm_head", "c_attn"}, tied());
  expect_adapters(kOddQwen2, {"embed_tokens"}, tied());
}

TEST(PlanTable, DecomposedEmbeddingAndHead) {
  expect_adapters(kOddLlama, {"embed_tokens", "lm_head"}, dora());
  expect_adapters(kOddGpt2, {"wte", "wpe", "lm_head"}, dora());
}

/// Token rows on any rank, in separate tables, in a tied table, and in an encoder-decoder.
TEST(PlanTable, RowsOfSomeTokens) {
  expect_adapters(kOddLlama, {"q_proj"}, rows({{"", {3, 102, 0, 51}}}));
  expect_adapters(
      kOddLlama, {"o_proj"}, rows({{"embed_tokens", {7, 90}}, {"lm_head", {102, 1, 50}}}));
  expect_adapters(kOddGpt2, {"c_attn"}, rows({{"", {100, 4, 52}}}));
  expect_adapters(kOddT5, {"q"}, rows({{"", {1, 100}}}), plans_of_tables(Recompute::kFull));
}

/// A tied head, and an untied head with its bias under the same name; the adapters of both include
/// the bias.
TEST(PlanTable, AdaptersOfAnEncodersHead) {
  std::vector<PlanCase> plans = plans_of_tables(Recompute::kFull);
  std::erase_if(plans, [](const PlanCase& plan) {  // plans with more stages than layers
    return plan.plan.pipeline.schedule == "zb-v";
  });
  expect_adapters(kOddBert, {"query", "decoder"}, {}, plans);
  expect_adapters(kOddBert, {"decoder", "word_embeddings"}, tied(), plans);
  expect_adapters(kOddDistilBert, {"vocab_projector", "q_lin"}, {}, plans);
  expect_adapters(kOddDistilBert, {"vocab_projector"}, dora(), plans);
}

/// One table that two stacks read, each with its own adapter.
TEST(PlanTable, AdaptersOfAnEncoderDecodersEmbedding) {
  const auto plans = plans_of_tables(Recompute::kFull);
  expect_adapters(kOddT5, {"q", "embed_tokens", "lm_head"}, {}, plans);
  expect_adapters(kOddT5Gated, {"decoder.embed_tokens"}, dora(), plans);
}

TEST(PlanTable, AdaptersOfAnEncoderDecodersHead) {
  expect_adapters(kOddT5, {"v", "lm_head"}, {}, plans_of_tables(Recompute::kFull));
}

}  // namespace table_adapters_test
}  // namespace lockstep::parallel
