// Tests that T5 trains the same under every supported plan as on one rank.
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace encoder_decoder_test {

PlanCase planned(mesh::Mesh mesh, int64_t accumulation) {
  PlanCase plan{mesh, accumulation, {}};
  plan.plan.sequence_length = kPlanLength;
  return plan;
}

PlanCase zero(mesh::Mesh mesh, int stage, Recompute recompute = Recompute::kNone) {
  PlanCase plan = planned(mesh, mesh.data > 2 ? 1 : 2);  // every rank and micro-batch has rows
  plan.plan.zero_stage = stage;
  plan.plan.recompute.kind = recompute;
  return plan;
}

PlanCase staged(mesh::Mesh mesh, int64_t accumulation, const PipelineOptions& pipeline) {
  PlanCase plan = planned(mesh, accumulation);
  plan.plan.pipeline = pipeline;
  return plan;
}

std::string name_of(const PlanCase& plan) {
  return plan_name(plan) + ", stage " + std::to_string(plan.plan.zero_stage);
}

void expect_what_one_rank_learns(const std::vector<PlanCase>& plans) {
  for (const char* json : {kOddT5, kOddT5Gated}) {
    const Trained one = train_under({}, json);
    for (const PlanCase& plan : plans) {
      expect_equal(train_under(plan, json), one, name_of(plan));
    }
  }
}

TEST(EncoderDecoder, DataParallelInEveryStage) {
  expect_what_one_rank_learns(
      {zero({}, 0, Recompute::kFull),
       zero({.data = 2}, 0),
       zero({.data = 3}, 1),
       zero({.data = 2}, 2),
       zero({.data = 3}, 3),
       zero({.data = 2}, 3, Recompute::kFull)});
}

TEST(EncoderDecoder, PipelinesOfEncoderAndDecoderLayers) {
  expect_what_one_rank_learns(
      {staged({.pipeline = 2}, 3, {.schedule = "naive"}),
       staged({.pipeline = 3}, 2, {.schedule = "gpipe"}),
       staged({.pipeline = 2}, 3, {}),
       staged({.pipeline = 3}, 3, {}),
       staged({.pipeline = 2}, 2, {.schedule = "interleaved", .virtual_stages = 2}),
       staged({.pipeline = 2}, 3, {.schedule = "zb-h1"}),
       staged({.pipeline = 2, .data = 2}, 2, {})});
}

TEST(EncoderDecoder, TensorParallelHeadsPositionsAndVocabulary) {
  expect_what_one_rank_learns(
      {planned({.tensor = 2}, 1),
       planned({.tensor = 3}, 2),
       planned({.data = 2, .tensor = 2}, 1),
       staged({.pipeline = 2, .tensor = 2}, 2, {})});
}

TEST(EncoderDecoder, SequenceAndContextParallelSourcesAndTargets) {
  PlanCase shards = planned({.tensor = 2}, 1);
  shards.plan.sequence_sharding = SequenceSharding::kShards;
  expect_what_one_rank_learns(
      {shards,
       planned({.context = 2}, 1),
       planned({.context = 3}, 2),
       planned({.data = 2, .context = 2}, 1)});
}

std::string refusal(const PlanCase& plan) {
  const model::ModelConfig config = model::parse_model_config(kOddT5, "a test");
  std::string told;
  std::mutex mutex;
  comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
    ParallelGroups axes(world, plan.mesh);
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    try {
      (void)parallelize(spec, plan.plan, axes);
    } catch (const Error& error) {
      const std::scoped_lock lock(mutex);
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      told = error.message();
    }
  });
  return told;
}

TEST(EncoderDecoder, PlansThatItDoesNotTakeAreRefusedWithTheReason) {
  PlanCase traded = planned({.context = 2}, 1);
  traded.plan.context_attention = ContextAttention::kUlysses;
  EXPECT_NE(refusal(traded).find("parallel.context_attention=ulysses"), std::string::npos);
  EXPECT_NE(
      refusal(zero({}, 0, Recompute::kSelective)).find("recompute=selective"), std::string::npos);
}

}  // namespace encoder_decoder_test
}  // namespace lockstep::parallel
