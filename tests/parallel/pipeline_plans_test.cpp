// Tests of pipelines built by parallelize(). Their training is covered by the plan table.
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace pipeline_plans_test {

TEST(PipelinePlans, EachRankMakesTheLayersOfItsStagesAlone) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  comm::run_ranks(2, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.pipeline = 2});
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
    ParallelGroups axes(world, {.pipeline = 3});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    EXPECT_THROW((void)parallelize(spec, {}, axes), Error);
  });
}

}  // namespace pipeline_plans_test
}  // namespace lockstep::parallel
