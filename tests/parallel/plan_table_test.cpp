// The table of plans: every axis with every other, on 2 to 8 ranks, against one rank. Dropout,
// clipping, accumulation and unequal numbers of targets are in all of them.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"
#include "temporary_folder.h"

namespace lockstep::parallel {
namespace {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kUlysses = ContextAttention::kUlysses;
constexpr auto kAllow = ZeroInPipeline::kAllow;

std::string with_five_layers(std::string json) {
  for (const char* key : {"n_layer\": 2", "num_hidden_layers\": 2"}) {
    const size_t at = json.find(key);
    if (at != std::string::npos) {
      json[at + std::string(key).size() - 1] = '5';
    }
  }
  return json;
}

void expect_table(const std::string& json, const std::vector<PlanCase>& table) {
  const Trained one = train_under({}, json);
  for (PlanCase plan : table) {
    plan.plan.sequence_length = kPlanLength;
    expect_equal(train_under(plan, json), one, plan_name(plan));
  }
}

/// Four heads, an MLP of 53, a vocabulary of 101, a batch of 5: a tied head, dropout everywhere.
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
          {{.context = 2, .tensor = 2}, 1, {.context_attention = kUlysses}},
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

/// Six query and two key-value heads, an MLP of 43, a vocabulary of 103, a head of its own.
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

/// Windows, a tied head and layers that are not alike.
TEST(PlanTable, Qwen2) {
  expect_table(
      kOddQwen2,
      {
          {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1}},
          {{.pipeline = 3, .context = 2}, 2, {.pipeline = {.schedule = "zb-h1", .split = "0,2,0"}}},
          {{.data = 2, .context = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      });
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

}  // namespace
}  // namespace lockstep::parallel
