// Tests of ZeRO combined with every other axis: losses, norms and gradients equal those of one
// rank.
#include <gtest/gtest.h>

#include "base/format.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace zero_plans_test {

PlanCase sharded(mesh::Mesh mesh, int stage, int64_t accumulation = 1) {
  PlanCase plan;
  plan.mesh = mesh;
  plan.accumulation = accumulation;
  plan.plan.zero_stage = stage;
  plan.plan.sequence_length = kPlanLength;
  return plan;
}

TEST(ZeroPlans, WithTensorAndContextParallelismGiveWhatOneRankDoes) {
  for (const char* json : {kOddGpt2, kOddLlama, kOddQwen2}) {
    const Trained one = train_under({}, json);
    for (const int stage : {1, 2, 3}) {
      PlanCase sequence = sharded({.data = 2, .tensor = 2}, stage, 2);
      sequence.plan.sequence_sharding = SequenceSharding::kShards;
      PlanCase recomputed = sharded({.data = 2, .tensor = 2}, stage);
      recomputed.plan.recompute.kind = Recompute::kFull;
      PlanCase hybrid = sharded({.data = 2, .context = 2}, stage, 2);
      hybrid.plan.shard_ranks = 2;
      std::vector<PlanCase> plans{sequence, recomputed, hybrid};
      for (const mesh::Mesh& mesh :
           {mesh::Mesh{.data = 2, .tensor = 2},
            mesh::Mesh{.data = 3, .tensor = 2},
            mesh::Mesh{.data = 2, .context = 2},
            mesh::Mesh{.context = 3},
            mesh::Mesh{.data = 2, .context = 2, .tensor = 2}}) {
        plans.push_back(sharded(mesh, stage));
      }
      for (const PlanCase& plan : plans) {
        expect_equal(
            train_under(plan, json), one, fmt::format("{}, stage {}", plan_name(plan), stage));
      }
    }
  }
}

TEST(ZeroPlans, WithAPipelineGiveWhatOneRankDoes) {
  for (const char* json : {kOddGpt2, kOddLlama}) {
    const Trained one = train_under({}, json);
    for (const int stage : {1, 2, 3}) {
      for (const PipelineOptions& pipeline :
           {PipelineOptions{},
            PipelineOptions{.schedule = "gpipe"},
            PipelineOptions{.schedule = "zb-h1"}}) {
        for (const mesh::Mesh& mesh :
             {mesh::Mesh{.pipeline = 2, .data = 2},
              mesh::Mesh{.pipeline = 2, .data = 2, .tensor = 2},
              mesh::Mesh{.pipeline = 2, .context = 2}}) {
          PlanCase plan = sharded(mesh, stage, 2);
          plan.plan.pipeline = pipeline;
          plan.plan.zero_in_pipeline = ZeroInPipeline::kAllow;
          expect_equal(
              train_under(plan, json),
              one,
              fmt::format("{}, {}, stage {}", plan_name(plan), pipeline.schedule, stage));
        }
      }
    }
  }
}

}  // namespace zero_plans_test
}  // namespace lockstep::parallel
