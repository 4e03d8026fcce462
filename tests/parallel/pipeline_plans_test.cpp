// A pipeline under parallelize(), alone and with every other axis.
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace {

PlanCase staged(mesh::Mesh mesh, int64_t accumulation, const PipelineOptions& pipeline) {
  PlanCase plan{mesh, accumulation, {}};
  plan.plan.pipeline = pipeline;
  plan.plan.sequence_length = kPlanLength;
  return plan;
}

TEST(PipelinePlans, GiveTheLossesNormsAndGradientsOfOneRank) {
  for (const char* json : {kOddGpt2, kOddLlama, kOddQwen2}) {
    const Trained one = train_under({}, json);
    PlanCase shards = staged({.pipeline = 2, .tensor = 2}, 2, {.schedule = "zb-h1"});
    shards.plan.sequence_sharding = SequenceSharding::kShards;
    const std::vector<PlanCase> plans{
        staged({.pipeline = 2}, 3, {}),
        staged({.pipeline = 2}, 5, {.schedule = "zb-h2"}),
        staged({.pipeline = 1}, 2, {.schedule = "interleaved", .virtual_stages = 2}),
        staged({.pipeline = 3}, 2, {.schedule = "gpipe", .split = "0,2,0"}),
        staged({.pipeline = 2, .data = 2}, 2, {}),
        staged({.pipeline = 2, .data = 2}, 2, {.schedule = "zb-h1"}),
        staged({.pipeline = 2, .tensor = 2}, 2, {}),
        staged({.pipeline = 2, .context = 2}, 2, {}),
        staged({.pipeline = 2, .data = 2, .tensor = 2}, 2, {.schedule = "zb-h1"}),
        shards};
    for (const PlanCase& plan : plans) {
      expect_equal(
          train_under(plan, json), one, plan_name(plan) + ", " + plan.plan.pipeline.schedule);
    }
  }
}

TEST(PipelinePlans, EachRankMakesTheLayersOfItsStagesAlone) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  comm::run_ranks(2, [&](comm::Communicator& world) {
    Axes axes(world, {.pipeline = 2});
    std::vector<std::string> filled;
    const ModelSpec spec{
        config,
        at::kFloat,
        at::kCPU,
        [&](const std::string& name, const ShardedParameter&, int64_t, const Tensor& values) {
          filled.push_back(name);
          Tensor(values).fill_(0.5);
        }};
    const auto model = parallelize(spec, {}, axes);
    const bool first = world.rank() == 0;
    EXPECT_EQ(std::count(filled.begin(), filled.end(), "transformer.wte.weight"), 1);  // tied
    EXPECT_EQ(std::count(filled.begin(), filled.end(), "transformer.wpe.weight"), first ? 1 : 0);
    EXPECT_EQ(std::count(filled.begin(), filled.end(), "transformer.ln_f.bias"), first ? 0 : 1);
    EXPECT_EQ(std::count(filled.begin(), filled.end(), "transformer.h.0.ln_1.bias"), first ? 1 : 0);
    EXPECT_EQ(std::count(filled.begin(), filled.end(), "transformer.h.1.ln_1.bias"), first ? 0 : 1);
  });
}

TEST(PipelinePlans, MoreStagesThanLayersAreRefusedByEveryRank) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  comm::run_ranks(3, [&](comm::Communicator& world) {
    Axes axes(world, {.pipeline = 3});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    EXPECT_THROW((void)parallelize(spec, {}, axes), Error);
  });
}

}  // namespace
}  // namespace lockstep::parallel
