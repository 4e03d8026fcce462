// Plan tests: every axis combined with every other, on 2 to 8 ranks, compared with one rank. All
// include dropout, clipping, accumulation and unequal numbers of targets.
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"
#include "parallel/products.h"
#include "temporary_folder.h"

namespace lockstep::parallel {
namespace plan_table_test {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kUlysses = ContextAttention::kUlysses;
constexpr auto kAllow = ZeroInPipeline::kAllow;

/// Plans that affect linears in every way: deferral by schedules and by tensor parallelism,
/// recomputation, shards, and each axis.
std::vector<PlanCase> plans_of_products(Recompute with_sequence = Recompute::kSelective) {
  constexpr auto kFull = Recompute::kFull;
  return {
      {{.data = 2}, 2, {.zero_stage = 1}},
      {{.data = 2}, 1, {.zero_stage = 2, .recompute = {kFull}}},
      {{.data = 3}, 1, {.zero_stage = 3}},
      {{.tensor = 2}, 2},
      {{.tensor = 3}, 1, {.recompute = {with_sequence}, .sequence_sharding = kShards}},
      {{.tensor = 4}, 2, {.recompute = {kFull}}},
      {{.context = 2}, 1},
      {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2}, 2, {.recompute = {kFull}, .pipeline = {.schedule = "zb-h2"}}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      {{.pipeline = 2, .tensor = 2},
       2,
       {.pipeline = {.schedule = "zb-h1"}, .sequence_sharding = kShards}},
      {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
  };
}

std::function<void(ModelSpec&)> adapted_by(const testing::Adapt& adapt) {
  return [adapt](ModelSpec& spec) {
    spec.adapt = adapt;
    spec.fill = testing::fill_adapted(spec.config, adapt);
  };
}

/// Four heads, an MLP width of 53, a vocabulary of 101, a batch of 5, a tied head, dropout
/// everywhere.
TEST(PlanTable, Gpt2) {
  const std::string json = with_five_layers(kOddGpt2);
  const TemporaryFolder folder;
  const OptimizerOffload to_files{OffloadDevice::kNvme, folder.path()};
  expect_table(
      json,
      {
          {{.data = 2}, 2, {.zero_stage = 1}},
          {{.tensor = 2}, 1, {.sequence_sharding = kShards}},
          {{.context = 2}, 2, {.context_attention = kUlysses}},
          {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h2"}}},
          {{.pipeline = 2}, 2, {.pipeline = {.schedule = "zb-v"}}},
          {{.data = 3}, 1, {.zero_stage = 3}},
          {{.tensor = 3}, 2},
          {{.context = 3}},
          {{.pipeline = 3}, 4, {.pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .tensor = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2, .context = 2}, 2, {.pipeline = {"interleaved", 2}}},
          {{.pipeline = 4}, 2, {.pipeline = {.schedule = "gpipe"}}},
          {{.data = 2, .tensor = 2}, 1, {.zero_stage = 2}},
          {{.data = 2, .context = 2}, 2, {.zero_stage = 3}},
          {{.context = 2, .tensor = 2}, 1},
          {{.pipeline = 3, .data = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .tensor = 3}, 2, {.sequence_sharding = kShards}},
          {{.data = 2, .context = 3}, 1, {.zero_stage = 2}},
          {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .data = 2, .tensor = 2},
           2,
           {.zero_stage = 1, .offload_optimizer = to_files}},
          {{.pipeline = 2, .data = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
          {{.data = 2, .context = 2, .tensor = 2}, 1, {.zero_stage = 3}},
          {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 2, .zero_in_pipeline = kAllow}},
          {{.pipeline = 2, .data = 2},
           2,
           {.zero_stage = 3, .zero_in_pipeline = kAllow, .pipeline = {.schedule = "zb-h1"}}},
      });
}

/// Six query and two key-value heads, an MLP width of 43, a vocabulary of 103, an untied head.
TEST(PlanTable, Llama) {
  const std::string json = with_five_layers(kOddLlama);
  expect_table(
      json,
      {
          {{.data = 2}, 2, {.zero_stage = 2}},
          {{.tensor = 2}, 2},
          {{.context = 2}, 1, {.context_attention = kUlysses}},
          {{.pipeline = 2}, 3},
          {{.tensor = 3}, 1, {.sequence_sharding = kShards}},
          {{.context = 3}, 1, {.context_attention = kUlysses}},
          {{.pipeline = 3}, 2, {.pipeline = {.schedule = "gpipe", .split = "2,3,0"}}},
          {{.tensor = 4}, 2},
          {{.data = 4}, 1, {.zero_stage = 3}},
          {{.pipeline = 2, .data = 2}, 2, {.pipeline = {.schedule = "zb-v"}}},
          {{.pipeline = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}},
          {{.pipeline = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
          {{.data = 2, .tensor = 2}, 2, {.zero_stage = 3}},
          {{.context = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}},
          {{.data = 2, .tensor = 3}, 2, {.zero_stage = 1}},
          {{.context = 2, .tensor = 3}, 1, {.zero_stage = 2}},
          {{.pipeline = 3, .context = 2}, 2},
          {{.pipeline = 2, .tensor = 3}, 2, {.pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2, .data = 2, .tensor = 2},
           2,
           {.zero_stage = 1, .pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2, .data = 2, .context = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .context = 2, .tensor = 2}, 2},
          {{.data = 2, .context = 2, .tensor = 2}, 2, {.zero_stage = 2}},
          {{.pipeline = 4, .data = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .data = 2, .tensor = 2},
           2,
           {.zero_stage = 3, .zero_in_pipeline = kAllow}},
      });
}

/// Three encoder and two decoder layers, five heads, an MLP width of 31, a vocabulary of 101, a
/// tied head. Sources have 13 tokens and targets 11; some are padded.
TEST(PlanTable, T5) {
  const TemporaryFolder folder;
  const std::string actions = folder.path() / "actions.txt";
  std::ofstream(actions) << "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1B0 1F1 1I1 1W1\n";
  expect_table(
      kOddT5,
      {
          {{.data = 2}, 2, {.zero_stage = 1}},
          {{.data = 2}, 1, {.zero_stage = 2}},
          {{.tensor = 2}, 1},
          {{.tensor = 2}, 2, {.sequence_sharding = kShards}},
          {{.context = 2}, 2},
          {{.pipeline = 2}, 3, {.pipeline = {.schedule = "naive"}}},
          {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h2"}}},
          {{.pipeline = 2}, 2, {.pipeline = {.schedule = "zb-v"}}},
          {{.pipeline = 2}, 2, {.pipeline = {"interleaved", 2}}},
          {{.pipeline = 2}, 2, {.pipeline = {.schedule = actions}}},
          {{.data = 3}, 1, {.zero_stage = 3}},
          {{.tensor = 3}, 2},
          {{.tensor = 3}, 1, {.sequence_sharding = kShards}},
          {{.context = 3}, 1},
          {{.pipeline = 3}, 4, {.pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 3}, 2, {.pipeline = {.schedule = "gpipe", .split = "0,4,1"}}},
          {{.pipeline = 4}, 2},
          {{.tensor = 4}, 1},
          {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 1, .pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}},
          {{.pipeline = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-v"}}},
          {{.context = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}},
          {{.data = 2, .context = 2}, 2, {.zero_stage = 3}},
          {{.pipeline = 3, .data = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .tensor = 3}, 2, {.pipeline = {.schedule = "zb-h1"}}},
          {{.data = 2, .tensor = 3}, 1, {.zero_stage = 2}},
          {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .context = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}},
          {{.data = 2, .context = 2, .tensor = 2}, 1, {.zero_stage = 3}},
          {{.pipeline = 4, .data = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 2, .data = 2, .tensor = 2},
           2,
           {.zero_stage = 3, .zero_in_pipeline = kAllow}},
      });
}

/// Packed rows with learned positions and dropout, with rotary positions and grouped heads, and
/// with windows. Document starts pass through pipelines and context parallelism.
TEST(PlanTable, DocumentsInARow) {
  constexpr auto kFull = Recompute::kFull;
  const std::vector<PlanCase> table{
      {{.data = 2}, 2, {.zero_stage = 3}},
      {{.tensor = 2}, 1, {.recompute = {kFull}}},
      {{.tensor = 2}, 2, {.sequence_sharding = kShards}},
      {{.context = 2}, 1},
      {{.context = 3}, 2},
      {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-v"}}},
      {{.context = 2, .tensor = 2}, 1, {.zero_stage = 2, .sequence_sharding = kShards}},
      {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
      {{.data = 2, .context = 2}, 1, {.zero_stage = 1, .recompute = {kFull}}},
  };
  expect_table(with_five_layers(kOddGpt2), table, nullptr, plan_documents);
  expect_table(with_five_layers(kOddLlama), table, nullptr, plan_documents);
  expect_table(kOddQwen2, {table[0], table[2], table[4], table[7]}, nullptr, plan_documents);
  const PlanCase of_heads{{.context = 2, .tensor = 2}, 1, {.context_attention = kUlysses}};
  expect_table(with_five_layers(kOddGpt2), {of_heads}, nullptr, plan_documents);
  expect_table(
      with_five_layers(kOddLlama),
      {{{.context = 3}, 2, {.context_attention = kUlysses}}},
      nullptr,
      plan_documents);
}

/// The noise on the embeddings of a decoder, of an encoder and of packed rows does not depend on
/// the plan.
TEST(PlanTable, EmbeddingNoise) {
  const auto noisy = [](const RowMaker& rows_of) -> RowMaker {
    return [rows_of](
               const model::ModelConfig& config, int64_t step, mesh::Range rows, int64_t length) {
      nn::ForwardInputs inputs = rows_of(config, step, rows, length);
      inputs.embedding_noise = 0.3;
      return inputs;
    };
  };
  const std::vector<PlanCase> table{
      {{.data = 2}, 2, {.zero_stage = 3, .recompute = {Recompute::kFull}}},
      {{.tensor = 2}, 1},
      {{.tensor = 2}, 2, {.sequence_sharding = kShards}},
      {{.context = 3}, 1},
      {{.context = 2, .tensor = 2}, 1, {.zero_stage = 2, .sequence_sharding = kShards}},
      {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
  };
  for (const char* json : {kOddGpt2, kOddLlama, kOddBert}) {
    expect_table(json, table, nullptr, noisy(plan_inputs));
  }
  expect_table(kOddLlama, {table[0], table[3], table[4]}, nullptr, noisy(plan_documents));
  const double without = train_under({}, kOddLlama, 1).losses.front();
  const double with =
      train_under({}, kOddLlama, 1, kPlanLength, nullptr, noisy(plan_inputs)).losses[0];
  EXPECT_GT(std::abs(with - without), 1e-3);
}

/// Layers are recomputed in the input half of a split backward pass.
TEST(PlanTable, RecomputationUnderZeroBubbles) {
  constexpr auto kFull = Recompute::kFull;
  constexpr auto kSelective = Recompute::kSelective;
  const std::string gpt2 = with_five_layers(kOddGpt2);
  expect_table(
      gpt2,
      {
          {{.pipeline = 2}, 3, {.recompute = {kFull}, .pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2}, 2, {.recompute = {kSelective}, .pipeline = {.schedule = "zb-v"}}},
          {{.pipeline = 2, .tensor = 2},
           2,
           {.recompute = {kFull, 2}, .pipeline = {.schedule = "zb-h2"}}},
          {{.pipeline = 2, .data = 2},
           2,
           {.zero_stage = 3,
            .zero_in_pipeline = kAllow,
            .recompute = {kFull},
            .pipeline = {.schedule = "zb-h1"}}},
      });
  expect_table(
      kOddT5,
      {{{.pipeline = 2, .context = 2},
        2,
        {.recompute = {kFull}, .pipeline = {.schedule = "zb-h1"}}}});
}

/// Adafactor needs whole matrices, while tensor ranks have shards, some of them replicated. If a
/// vector's gradient is only rounding error, as for GPT-2's key biases, Adafactor takes full-size
/// steps along it, so GPT-2 is compared only up to the first such step.
TEST(PlanTable, AdafactorWithTensorParallelism) {
  for (const auto& [json, steps] : {std::pair(kOddGpt2, 2), std::pair(kOddLlama, 5)}) {
    PlanCase alone;
    alone.plan.optimizer.optim = "adafactor";
    const Trained one = train_under(alone, json, steps);
    for (PlanCase plan : std::vector<PlanCase>{
             {{.tensor = 2}, 1},
             {{.tensor = 4}, 1, {.sequence_sharding = kShards}},
             {{.data = 2, .tensor = 3}, 1, {.zero_stage = 3}},
             {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3, .persistence_threshold = 100}},
             {{.pipeline = 2, .tensor = 2}, 2, {.zero_stage = 1}}}) {
      plan.plan.optimizer.optim = "adafactor";
      plan.plan.sequence_length = kPlanLength;
      expect_equal(train_under(plan, json, steps), one, plan_name(plan));
    }
  }
}

/// Windows, a tied head and layers of different kinds.
TEST(PlanTable, Qwen2) {
  expect_table(
      kOddQwen2,
      {
          {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 3, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1", .split = "0,2,0"}}},
          {{.data = 2, .context = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      });
}

/// Query and key norms: tensor ranks have different heads but share the norm weights.
TEST(PlanTable, Qwen3) {
  expect_table(
      kOddQwen3,
      {
          {{.data = 2}, 2, {.zero_stage = 2}},
          {{.data = 3}, 1, {.zero_stage = 3}},
          {{.tensor = 2}, 2},
          {{.tensor = 3}, 1, {.recompute = {Recompute::kFull}}},
          {{.tensor = 4}, 2, {.sequence_sharding = kShards}},
          {{.context = 2}, 2},
          {{.context = 3}, 1, {.context_attention = kUlysses}},
          {{.pipeline = 3}, 2},
          {{.pipeline = 2, .tensor = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2, .tensor = 3},
           2,
           {.pipeline = {.schedule = "zb-h2"}, .sequence_sharding = kShards}},
          {{.context = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}},
          {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3}},
          {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
          {{.data = 2, .context = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      });
}

/// LoRA on every linear, with trained and with frozen base weights.
TEST(PlanTable, LowRankProducts) {
  for (const char* json : {kOddGpt2, kOddLlama, kOddT5}) {
    // Dropout inside T5's MLP is not compatible with selective recomputation.
    const auto plans = plans_of_products(json == kOddT5 ? Recompute::kFull : Recompute::kSelective);
    for (const testing::Base base : {testing::Base::kTrained, testing::Base::kFrozen}) {
      expect_table(json, plans, adapted_by([=](nn::LanguageModel& model) {
                     testing::adapt_low_rank(model, base);
                   }));
    }
  }
}

/// Adapters on some linears, with biases: LoRA ranks that are not divisible by the number of tensor
/// ranks, and all axes.
TEST(PlanTable, Adapters) {
  const std::vector<PlanCase> plans{
      {{.context = 3}, 2},
      {{.context = 2, .tensor = 2}, 1},
      {{.pipeline = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2, .data = 2},
       2,
       {.zero_stage = 3, .zero_in_pipeline = kAllow, .recompute = {Recompute::kFull}}},
      {{.data = 2, .context = 2, .tensor = 2}, 2, {.zero_stage = 2, .sequence_sharding = kShards}},
      {{.pipeline = 2, .data = 2, .tensor = 2},
       2,
       {.zero_stage = 1, .pipeline = {.schedule = "zb-h2"}}},
  };
  model::LoraConfig some;
  some.bias = model::LoraConfig::Bias::kAll;
  some.exclude_modules.names = {"k_proj", "c_fc"};
  for (const char* json : {kOddGpt2, kOddLlama}) {
    some.rank_pattern = {{json == kOddGpt2 ? "c_attn" : "q_proj", 5}};
    expect_table(json, plans, adapted_by([=](nn::LanguageModel& model) {
                   testing::adapt_low_rank(model, testing::Base::kFrozen, some);
                 }));
  }
}

/// DoRA: tensor ranks share the norms of rows whose columns are sharded.
TEST(PlanTable, DecomposedProducts) {
  model::LoraConfig config;
  config.use_dora = true;
  for (const char* json : {kOddGpt2, kOddLlama}) {
    expect_table(json, plans_of_products(), adapted_by([=](nn::LanguageModel& model) {
                   testing::adapt_low_rank(model, testing::Base::kFrozen, config);
                 }));
  }
}

/// Frozen packed weights in flat units of bytes. Blocks span rows and are split anywhere. Biases,
/// norms and embeddings are trained.
TEST(PlanTable, PackedProducts) {
  using ops::PackedKind;
  for (const char* json : {kOddGpt2, kOddLlama}) {
    for (const ops::PackedFormat& format :
         {ops::PackedFormat{PackedKind::kNf4, 64, true}, ops::PackedFormat{PackedKind::kInt8}}) {
      expect_table(
          json, plans_of_products(), [&](ModelSpec& spec) { testing::pack(spec, format); });
    }
  }
}

/// QLoRA: LoRA and DoRA on all linears with packed weights.
TEST(PlanTable, AdaptersOfPackedProducts) {
  using ops::PackedKind;
  model::LoraConfig plain, decomposed;
  decomposed.use_dora = true;
  const auto expect = [](const char* json,
                         const ops::PackedFormat& format,
                         const model::LoraConfig& config) {
    const auto adapt = [config](nn::LanguageModel& model) {
      testing::adapt_low_rank(model, testing::Base::kFrozen, config);
    };
    const auto plans = plans_of_products(json == kOddT5 ? Recompute::kFull : Recompute::kSelective);
    expect_table(json, plans, [&](ModelSpec& spec) { testing::pack(spec, format, adapt); });
  };
  expect(kOddGpt2, {PackedKind::kNf4, 64, true}, plain);
  expect(kOddLlama, {PackedKind::kNf4, 64, true}, decomposed);
  expect(kOddLlama, {PackedKind::kFp4, 32, false}, plain);
  expect(kOddGpt2, {PackedKind::kInt8}, plain);
  expect(kOddQwen2, {PackedKind::kInt8}, decomposed);
  expect(kOddT5, {PackedKind::kNf4, 32, true}, plain);
  const TemporaryFolder folder;  // for offloaded shards of bytes
  expect_table(
      kOddLlama,
      {{{.data = 2}, 1, {.zero_stage = 3, .parameter_folder = folder.path()}}},
      [&](ModelSpec& spec) { testing::pack(spec, {PackedKind::kNf4, 64, true}); });
}

/// Compares each plan in float64, because float32 sums in a different order sometimes round to a
/// different 8-bit number. `parts_of` returns the number of micro-batches of the one-rank run.
void expect_float8(
    const std::string& json,
    const std::vector<PlanCase>& plans,
    const model::Float8& float8,
    int64_t length,
    const std::function<int64_t(const PlanCase&)>& parts_of) {
  const auto train = [&](const PlanCase& plan) {
    return train_under(plan, json, 2, length, [&](ModelSpec& spec) {
      spec.dtype = at::kDouble;
      spec.float8 = float8;
    });
  };
  std::map<int64_t, Trained> ones;
  for (PlanCase plan : plans) {
    const int64_t parts = parts_of(plan);
    if (!ones.contains(parts)) {
      ones.emplace(parts, train({{}, parts}));
    }
    plan.plan.sequence_length = length;
    expect_equal(train(plan), ones.at(parts), plan_name(plan));
  }
}

/// 8-bit float products with one scale per row (token or output), which does not depend on the rest
/// of the batch. Ranks with shards of a row agree on its maximum.
TEST(PlanTable, Float8Rows) {
  const model::Float8 rows{model::Float8::Scaling::kRow, 0, 0};
  const auto whole = [](const PlanCase&) { return int64_t{1}; };
  expect_float8(kOddLlama, plans_of_products(), rows, kPlanLength, whole);
  const std::vector<PlanCase> some{
      {{.data = 3}, 1, {.zero_stage = 3}},
      {{.tensor = 3}, 1, {.recompute = {Recompute::kFull}, .sequence_sharding = kShards}},
      {{.pipeline = 2, .tensor = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
  };
  for (const char* json : {kOddGpt2, kOddT5}) {
    expect_float8(json, some, rows, kPlanLength, whole);
  }
  expect_float8(
      kOddLlama,
      {{{.context = 3}, 2},
       {{.context = 2}, 1, {.context_attention = kUlysses}},
       {{.pipeline = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
       {{.data = 2, .context = 2, .tensor = 2}, 2, {.zero_stage = 2}}},
      {model::Float8::Scaling::kRow, 1, 0},
      kPlanLength,
      whole);
  expect_float8(
      kOddMixtral,
      {{{.data = 2}, 2, {.zero_stage = 1, .expert_ranks = 2}},
       {{.tensor = 2}, 1},
       {{.context = 2}, 1, {.expert_ranks = 2}},
       {{.data = 3}, 1, {.zero_stage = 3}}},
      rows,
      kPlanLength,
      whole);
}

/// 8-bit float products with one scale for all tokens of a micro-batch. The one-rank run uses the
/// same micro-batches, and the lengths need no padding on any rank.
TEST(PlanTable, Float8Tensors) {
  constexpr int64_t kDividing = 12;
  const model::Float8 tensors{model::Float8::Scaling::kTensor, 0, 0};
  const auto alike = [](const PlanCase& plan) { return plan.mesh.data * plan.accumulation; };
  std::vector<PlanCase> plans = plans_of_products();
  plans.push_back({{.context = 3}, 2});
  plans.push_back({{.data = 2, .context = 2, .tensor = 2}, 1, {.zero_stage = 2}});
  plans.push_back({{.pipeline = 2, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}});
  expect_float8(kOddGpt2, plans, tensors, kDividing, alike);
  expect_float8(kOddLlama, {{{.tensor = 4}, 2}, plans.back()}, tensors, kDividing, alike);
  expect_float8(
      kOddT5,
      {{{.data = 2}, 2, {.zero_stage = 1}},
       {{.tensor = 2}, 1, {.sequence_sharding = kShards}},
       {{.context = 2}, 2},
       {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}}},
      tensors,
      kDividing,
      alike);
}

/// LoRA on linears with 8-bit float products.
TEST(PlanTable, AdaptersOfFloat8Products) {
  const auto adapt = [](nn::LanguageModel& model) {
    testing::adapt_low_rank(model, testing::Base::kFrozen);
  };
  const auto vary = [&](ModelSpec& spec) {
    spec.dtype = at::kDouble;
    spec.adapt = adapt;
    spec.fill = testing::fill_adapted(spec.config, adapt);
    spec.float8 = model::Float8{model::Float8::Scaling::kRow, 0, 0};
  };
  expect_table(
      kOddLlama,
      {{{.tensor = 2}, 1, {.recompute = {Recompute::kSelective}}},
       {{.pipeline = 2, .data = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}}},
      vary);
}

/// Frozen parameters: the embedding and first layers, whose stages then have no backward pass; all
/// but biases and norms; and parts of every layer.
TEST(PlanTable, FrozenLayers) {
  const std::string gpt2 = with_five_layers(kOddGpt2), llama = with_five_layers(kOddLlama);
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {gpt2, {"wte", "wpe", "\\.h\\.[0-2]\\."}},
      {gpt2, {"c_(attn|proj|fc)\\.weight", "w[tp]e"}},
      {llama, {"layers\\.[13]\\.", "q_proj", "lm_head"}},
      {llama, {"embed_tokens", "norm"}},
      {kOddT5, {"^encoder", "shared"}},
  };
  for (const auto& [json, patterns] : cases) {
    const auto freeze = [&](ModelSpec& spec) { spec.freeze = patterns; };
    std::vector<PlanCase> plans =
        plans_of_products(json == kOddT5 ? Recompute::kFull : Recompute::kSelective);
    plans.push_back({{.pipeline = 3, .data = 2}, 2, {.zero_stage = 1}});
    plans.push_back(
        {{.pipeline = 3}, 3, {.recompute = {Recompute::kFull}, .pipeline = {.schedule = "zb-h1"}}});
    plans.push_back({{.pipeline = 2, .data = 2}, 2, {.zero_stage = 3, .zero_in_pipeline = kAllow}});
    expect_table(json, plans, freeze);
  }
}

/// Frozen parameters have no gradients and no optimizer state, in any ZeRO stage.
TEST(PlanTable, WhatIsFrozenHasNoStateAndStays) {
  const model::ModelConfig config = model::parse_model_config(kOddLlama, "a test");
  for (int stage = 0; stage <= 3; ++stage) {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      ParallelGroups axes(world, {.data = 2});
      ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
      spec.freeze = {"layers\\.0\\.", "embed_tokens"};
      Plan plan{.zero_stage = stage};
      const auto model = parallelize(spec, plan, axes);
      const auto is_frozen = [](const std::string& name) {
        return name.find("layers.0.") != std::string::npos ||
               name.find("embed_tokens") != std::string::npos;
      };
      std::map<std::string, Tensor> before;
      const auto look = [&](const StateSlice& slice) {
        EXPECT_FALSE(slice.file_group == "optimizer" && is_frozen(slice.name)) << slice.name;
        if (slice.file_group == "model" && is_frozen(slice.name)) {
          const auto [at, is_new] = before.try_emplace(slice.name, slice.data.clone());
          EXPECT_TRUE(is_new || at->second.equal(slice.data)) << slice.name;
        }
      };
      model->visit_state(look);
      EXPECT_FALSE(before.empty());
      const auto rows = mesh::split_evenly(kPlanRows, 2, world.rank());
      (void)model->forward_backward(
          std::vector{plan_inputs(config, 0, rows, kPlanLength)}, /*target_tokens=*/40);
      model->visit_gradients(
          [&](const StateSlice& slice) { EXPECT_FALSE(is_frozen(slice.name)) << slice.name; });
      model->optimizer_step(1e-2);
      model->visit_state(look);
    });
  }
}

TEST(PlanTable, StagesTwoAndThreeOfZeroInAPipelineAreRefusedWithTheReason) {
  for (const int stage : {2, 3}) {
    const Plan plan{.zero_stage = stage};
    try {
      check_plan(plan, {.pipeline = 2, .data = 2});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.message().find("every micro-batch"), std::string::npos) << error.what();
      EXPECT_NE(error.remedy().find("parallel.zero_in_pipeline"), std::string::npos);
    }
    EXPECT_NO_THROW(check_plan(plan, {.data = 4}));
  }
}

TEST(PlanTable, EightBitMomentsOfPartsInFilesAreRefusedWithTheReason) {
  Plan plan;
  plan.optimizer.optim = "adamw_8bit";
  plan.offload_optimizer.device = OffloadDevice::kNvme;
  try {
    check_plan(plan, {.tensor = 2});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(error.message().find("blocks of 256"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(check_plan(plan, {.data = 2}));
}

}  // namespace plan_table_test
}  // namespace lockstep::parallel
