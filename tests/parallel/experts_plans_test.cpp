// Plan tests of mixtures of experts: every axis, ZeRO, recomputation and deferral, compared with
// one rank.
#include <gtest/gtest.h>

#include "parallel/plans.h"
#include "parallel/products.h"

namespace lockstep::parallel {
namespace experts_plans_test {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kFull = Recompute::kFull;
constexpr auto kSelective = Recompute::kSelective;

/// Rows of unequal lengths, including one that is only padding.
nn::ForwardInputs padded_rows(
    const model::ModelConfig& config, int64_t step, mesh::Range rows, int64_t length) {
  nn::ForwardInputs inputs = plan_inputs(config, step, rows, length);
  const Tensor lengths = at::tensor({length, int64_t{4}, int64_t{0}, int64_t{7}, int64_t{1}});
  inputs.real_tokens = at::arange(length).lt(lengths.unsqueeze(1)).slice(0, rows.begin, rows.end);
  return inputs;
}

TEST(ExpertPlans, Mixtral) {
  expect_table(
      with_five_layers(kOddMixtral),
      {
          {{.data = 2}, 2, {.zero_stage = 1}},
          {{.data = 2}, 1, {.zero_stage = 2, .recompute = {kFull}}},
          {{.data = 3}, 1, {.zero_stage = 3}},
          {{.tensor = 2}, 2},
          {{.tensor = 3}, 1, {.recompute = {kSelective}, .sequence_sharding = kShards}},
          {{.tensor = 4}, 2, {.recompute = {kFull, 2}}},
          {{.context = 2}, 2},
          {{.context = 3}, 1, {.zero_stage = 3}},
          {{.pipeline = 2}, 3},
          {{.pipeline = 2}, 2, {.recompute = {kFull}, .pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 3}, 2, {.pipeline = {.schedule = "zb-h2"}}},
          {{.pipeline = 2, .tensor = 2},
           2,
           {.pipeline = {.schedule = "zb-h1"}, .sequence_sharding = kShards}},
          {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3}},
          {{.context = 2, .tensor = 2}, 2, {.sequence_sharding = kShards}},
          {{.pipeline = 2, .data = 2, .context = 2}, 2, {.zero_stage = 1}},
      });
}

TEST(ExpertPlans, Qwen3WithALayerOfAnMlp) {
  expect_table(
      kOddQwen3Moe,
      {
          {{.data = 2}, 2, {.zero_stage = 3}},
          {{.tensor = 2}, 1},
          {{.tensor = 3}, 2, {.sequence_sharding = kShards}},
          {{.context = 2}, 1, {.context_attention = ContextAttention::kUlysses}},
          {{.pipeline = 2}, 2, {.pipeline = {.schedule = "zb-h2"}}},
          {{.pipeline = 2, .tensor = 2}, 2, {.recompute = {kFull}}},
          {{.data = 2, .context = 2}, 1, {.zero_stage = 2, .recompute = {kSelective}}},
      });
}

TEST(ExpertPlans, OlmoeNormsOfAllHeadsOverTensorRanks) {
  expect_table(
      kOddOlmoe,
      {
          {{.data = 2}, 1, {.zero_stage = 2}},
          {{.tensor = 2}, 2},
          {{.tensor = 3}, 1, {.sequence_sharding = kShards}},
          {{.tensor = 4}, 1, {.recompute = {kFull}}},
          {{.context = 2}, 2},
          {{.pipeline = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
          {{.data = 2, .tensor = 2}, 2, {.zero_stage = 3}},
      });
}

/// A shared expert, which all tokens use, next to distributed experts.
TEST(ExpertPlans, Qwen2WithASharedExpert) {
  expect_table(
      kOddQwen2Moe,
      {
          {{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2}},
          {{.data = 4}, 1, {.zero_stage = 1, .expert_ranks = 4}},
          {{.tensor = 4}, 1, {.recompute = {kFull}}},
          {{.tensor = 3}, 2, {.recompute = {kSelective}, .sequence_sharding = kShards}},
          {{.data = 2, .tensor = 2}, 1, {.expert_ranks = 2, .sequence_sharding = kShards}},
          {{.context = 2}, 2, {.expert_ranks = 2}},
          {{.pipeline = 2, .tensor = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
      });
}

/// Expert groups, score correction, and an unweighted shared expert.
TEST(ExpertPlans, Glm45ChoosesWithinGroups) {
  expect_table(
      kOddGlm4Moe,
      {
          {{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2}},
          {{.data = 4}, 1, {.zero_stage = 1, .expert_ranks = 4}},
          {{.tensor = 4}, 1, {.recompute = {kFull}}},
          {{.data = 2, .tensor = 2}, 1, {.expert_ranks = 2, .sequence_sharding = kShards}},
          {{.context = 2}, 2, {.expert_ranks = 2, .recompute = {kSelective}}},
          {{.pipeline = 2, .tensor = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
      });
}

/// Attention sinks in the fused kernels and, with dropout, in the plain ones.
TEST(ExpertPlans, GptOssSinksAndBiases) {
  expect_table(
      kOddGptOss,
      {
          {{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2}},
          {{.tensor = 4}, 1, {.recompute = {kSelective}}},
          {{.tensor = 3}, 2, {.recompute = {kFull}, .sequence_sharding = kShards}},
          {{.context = 2}, 1, {.expert_ranks = 2, .recompute = {kFull}}},
          {{.pipeline = 2, .data = 2}, 2, {.expert_ranks = 2, .pipeline = {.schedule = "zb-h1"}}},
      });
  const std::string plain = kOddGptOss;
  const std::string dropping = plain.substr(0, plain.size() - 1) + R"(, "attention_dropout": 0.1})";
  const std::vector<PlanCase> plans{
      {{.tensor = 2}, 1, {.recompute = {kSelective}}},
      {{.context = 3}, 2},
      {{.context = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}},
      {{.context = 3}, 1, {.context_attention = ContextAttention::kUlysses}},
  };
  expect_table(dropping.c_str(), plans);
  expect_table(dropping.c_str(), plans, nullptr, plan_documents);
}

/// Packed rows of several documents.
TEST(ExpertPlans, DocumentsInARow) {
  expect_table(
      kOddMixtral,
      {{{.data = 2}, 2, {.zero_stage = 3}},
       {{.context = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}}},
      nullptr,
      plan_documents);
}

/// Five experts over 2, 3 and 4 ranks of data and context, combined with every other axis.
TEST(ExpertPlans, ExpertsSpreadOverRanks) {
  expect_table(
      with_five_layers(kOddMixtral),
      {
          {{.data = 2}, 2, {.expert_ranks = 2}},
          {{.data = 2}, 1, {.zero_stage = 3, .expert_ranks = 2}},
          {{.data = 3}, 1, {.zero_stage = 1, .expert_ranks = 3}},
          {{.data = 4}, 1, {.zero_stage = 2, .expert_ranks = 2, .recompute = {kFull}}},
          {{.data = 4}, 1, {.zero_stage = 3, .expert_ranks = 4}},
          {{.data = 4}, 1, {.zero_stage = 3, .shard_ranks = 2, .expert_ranks = 2}},
          {{.context = 2}, 2, {.expert_ranks = 2}},
          {{.data = 2, .context = 2}, 2, {.zero_stage = 3, .expert_ranks = 4}},
          {{.data = 2, .context = 2}, 1, {.expert_ranks = 2, .recompute = {kSelective}}},
          {{.data = 2, .tensor = 2}, 2, {.expert_ranks = 2, .sequence_sharding = kShards}},
          {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 1, .expert_ranks = 2}},
          {{.pipeline = 2, .data = 2},
           2,
           {.expert_ranks = 2, .recompute = {kFull}, .pipeline = {.schedule = "zb-h1"}}},
          {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1, .expert_ranks = 2}},
      });
}

/// The same with tokens in two halves: every form of weight gradient, a shared expert, layers
/// without a shared expert.
TEST(ExpertPlans, HalvesOfTheTokens) {
  expect_table(
      with_five_layers(kOddMixtral),
      {
          {{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2, .expert_halves = true}},
          {{.context = 2}, 1, {.expert_ranks = 2, .expert_halves = true, .recompute = {kFull}}},
          {{.data = 2, .tensor = 2},
           2,
           {.expert_ranks = 2, .expert_halves = true, .sequence_sharding = kShards}},
          {{.pipeline = 2, .data = 2},
           2,
           {.expert_ranks = 2, .expert_halves = true, .pipeline = {.schedule = "zb-h1"}}},
      });
  expect_table(
      kOddQwen2Moe,
      {{{.data = 4}, 1, {.zero_stage = 1, .expert_ranks = 4, .expert_halves = true}},
       {{.context = 2}, 2, {.expert_ranks = 2, .expert_halves = true}}});
  expect_table(
      kOddGptOss,
      {{{.data = 2}, 2, {.expert_ranks = 2, .expert_halves = true, .recompute = {kSelective}}}});
}

/// One expert per token, so that some ranks send each other nothing; one layer with a dense MLP;
/// one stage without a mixture.
TEST(ExpertPlans, RanksWithoutTokensAndStagesWithoutExperts) {
  expect_table(
      kOddOlmoe,
      {{{.data = 4}, 1, {.zero_stage = 1, .expert_ranks = 4}},
       {{.data = 2, .context = 2, .tensor = 2},
        1,
        {.zero_stage = 3, .expert_ranks = 4, .expert_halves = true}}});
  expect_table(
      kOddQwen3Moe,
      {{{.data = 3}, 1, {.zero_stage = 3, .expert_ranks = 3}},
       {{.pipeline = 3, .data = 2}, 2, {.zero_stage = 1, .expert_ranks = 2}}});
}

/// Ranks whose experts get no tokens, and one rank whose experts get all.
TEST(ExpertPlans, AllTokensToTheSameExperts) {
  const auto crowd = [](ModelSpec& spec) {
    spec.fill = [fill = spec.fill](
                    const std::string& name,
                    const ShardedParameter& parameter,
                    int64_t begin,
                    const Tensor& values) {
      fill(name, parameter, begin, values);
      if (name.ends_with("mlp.router.bias")) {
        values.copy_(at::arange(begin, begin + values.numel()).lt(2).mul(4));
      }
    };
  };
  // The balance loss gives the router a gradient; without it the gradient nearly cancels.
  const RouterLosses losses{nn::Balance::kRows, 0.1, 0};
  const auto train = [&](PlanCase plan) {
    plan.plan.router_losses = losses;
    plan.plan.sequence_length = kPlanLength;
    return train_under(plan, kOddGptOss, 2, kPlanLength, crowd);
  };
  const Trained alone = train({});
  EXPECT_EQ(alone.loads[0]->most, 0.5);
  for (const PlanCase& plan : std::vector<PlanCase>{
           {{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2}},
           {{.data = 4}, 1, {.zero_stage = 1, .expert_ranks = 4, .expert_halves = true}},
           {{.context = 2, .tensor = 2}, 1, {.expert_ranks = 2, .sequence_sharding = kShards}}}) {
    expect_equal(train(plan), alone, plan_name(plan));
  }
}

/// LoRA and DoRA adapters on all linears of frozen or packed experts.
TEST(ExpertPlans, AdaptersAndPackedWeights) {
  const std::vector<PlanCase> plans{
      {{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2}},
      {{.tensor = 3}, 1, {.recompute = {kFull}, .sequence_sharding = kShards}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 1, .expert_ranks = 2}},
      {{.context = 2}, 2, {.expert_ranks = 2, .expert_halves = true}},
      {{.pipeline = 2, .data = 2}, 2, {.expert_ranks = 2, .pipeline = {.schedule = "zb-h1"}}},
  };
  for (const bool decomposes : {false, true}) {
    const testing::Adapt adapt = [=](nn::LanguageModel& model) {
      model::LoraConfig config;
      config.r = 3;
      config.lora_dropout = 0.2;
      config.use_dora = decomposes;
      config.targets_all_linear = true;
      config.init_lora_weights = "false";
      nn::add_adapters(
          model, model::resolve_adapters(config, model.config(), model::AdapterOrigin::kNew));
    };
    expect_table(kOddMixtral, plans, [&](ModelSpec& spec) {
      spec.adapt = adapt;
      spec.fill = testing::fill_adapted(spec.config, adapt);
    });
    expect_table(kOddMixtral, plans, [&](ModelSpec& spec) {
      testing::pack(spec, {ops::PackedKind::kNf4, 32, true}, adapt);
    });
  }
}

TEST(ExpertPlans, MoreRanksThanExpertsAndWhatDoesNotDivideAreRefused) {
  const auto refused = [](const PlanCase& plan, const char* what) {
    try {
      train_under(plan, kOddQwen3Moe, 1);
      FAIL() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused({{.data = 4}, 1, {.expert_ranks = 4}}, "the model has 3 experts");
  refused({{.data = 3}, 1, {.expert_ranks = 2}}, "does not divide the 3 ranks");
  PlanCase factors{{.data = 2}, 1, {.expert_ranks = 2}};
  factors.plan.optimizer.optim = "adafactor";
  refused(factors, "adafactor is not supported with parallel.expert");
  refused(
      {{.pipeline = 2}, 1, {.router_losses = {.balance = nn::Balance::kBatch}}},
      "is not supported in a pipeline");
}

/// Router losses and the reported load equal those of one rank.
TEST(ExpertPlans, RouterLosses) {
  const RouterLosses losses{nn::Balance::kRows, 0.3, 0.05};
  PlanCase alone;
  alone.plan.router_losses = losses;
  for (const RowMaker& rows : {RowMaker(plan_inputs), RowMaker(padded_rows)}) {
    const auto train = [&](const PlanCase& plan) {
      return train_under(plan, kOddQwen3Moe, 2, kPlanLength, nullptr, rows);
    };
    const Trained one = train(alone);
    const Trained without = train({});
    EXPECT_GT(std::abs(one.norms[0] - without.norms[0]), 1e-3 * one.norms[0]);
    ASSERT_TRUE(one.loads[0].has_value());
    EXPECT_GT(one.loads[0]->most, 1.0 / 3);
    EXPECT_LT(one.loads[0]->least, 1.0 / 3);
    EXPECT_GT(one.loads[0]->balance, 1);
    EXPECT_GT(one.loads[0]->z, 0);
    for (PlanCase plan : std::vector<PlanCase>{
             {{.data = 2}, 2, {.zero_stage = 1}},
             {{.data = 3}, 1, {.zero_stage = 3, .expert_ranks = 3}},
             {{.context = 2}, 2, {.recompute = {kFull}}},
             {{.tensor = 2}, 1, {.sequence_sharding = kShards}},
             {{.pipeline = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
             {{.pipeline = 2, .tensor = 2}, 2, {.recompute = {kFull}}},
             {{.data = 2, .context = 2}, 1, {.zero_stage = 2, .expert_ranks = 2}}}) {
      plan.plan.router_losses = losses;
      plan.plan.sequence_length = kPlanLength;
      expect_equal(train(plan), one, plan_name(plan));
    }
  }
}

/// The same tokens are dropped by expert capacity under every plan: plain, padded and packed rows.
TEST(ExpertPlans, ExpertCapacity) {
  const auto compare = [](const char* json, double factor, const RowMaker& rows, auto plans) {
    const auto train = [&](PlanCase plan) {
      plan.plan.expert_capacity_factor = factor;
      plan.plan.router_losses = {nn::Balance::kRows, 0.3, 0.05};
      plan.plan.sequence_length = kPlanLength;
      return train_under(plan, json, 2, kPlanLength, nullptr, rows);
    };
    const Trained one = train({});
    EXPECT_GT(one.loads[0]->dropped, 0.05);
    EXPECT_LT(one.loads[0]->dropped, 0.8);
    for (const PlanCase& plan : plans) {
      expect_equal(train(plan), one, plan_name(plan));
    }
  };
  const std::vector<PlanCase> plans{
      {{.data = 2}, 2, {.zero_stage = 3, .expert_ranks = 2}},
      {{.context = 2}, 1, {.expert_ranks = 2, .expert_halves = true, .recompute = {kFull}}},
      {{.pipeline = 2, .tensor = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}},
      {{.context = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}},
  };
  compare(kOddMixtral, 0.8, plan_inputs, plans);
  compare(kOddGlm4Moe, 1, padded_rows, plans);
  compare(kOddQwen2Moe, 0.6, plan_documents, plans);
}

/// No token is dropped outside training, so an evaluation equals that of the whole model.
TEST(ExpertPlans, AnEvaluationHasNoCapacity) {
  const auto evaluated = [](double factor) {
    PlanCase plan;
    plan.plan.expert_capacity_factor = factor;
    return train_under(plan, kOddMixtral, 0).sums.back();
  };
  EXPECT_TRUE(evaluated(0.2).equal(evaluated(0)));
}

}  // namespace experts_plans_test
}  // namespace lockstep::parallel
