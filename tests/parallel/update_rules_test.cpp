// Plan tests of optimizers with per-parameter rules: Muon's whole matrices, and learning rates and
// weight decays by name.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace update_rules_test {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kAllow = ZeroInPipeline::kAllow;
constexpr double kRate = 1e-3;  // learning rate of train_under()

/// Compares the plans with one rank, all with `set` applied.
void expect_plans(
    const std::string& json,
    const std::vector<PlanCase>& table,
    const std::function<void(Plan&)>& set,
    const std::function<void(ModelSpec&)>& vary = nullptr) {
  constexpr int64_t kSteps = 3;
  PlanCase alone;
  set(alone.plan);
  const Trained one = train_under(alone, json, kSteps, kPlanLength, vary);
  for (PlanCase plan : table) {
    set(plan.plan);
    plan.plan.sequence_length = kPlanLength;
    expect_equal(train_under(plan, json, kSteps, kPlanLength, vary), one, plan_name(plan));
  }
}

/// Blocks of heads and of rows that are split by shards and tensor parallelism.
TEST(PlanTable, OptimizersAdamMini) {
  const OptimizerOffload to_host{OffloadDevice::kCpu};
  const std::vector<PlanCase> table{
      {{.data = 2}, 2},
      {{.data = 3}, 1, {.zero_stage = 1}},
      {{.data = 2}, 2, {.zero_stage = 2}},
      {{.data = 3}, 1, {.zero_stage = 3, .persistence_threshold = 100}},
      {{.data = 4}, 1, {.zero_stage = 1, .shard_ranks = 2}},
      {{.data = 2}, 1, {.zero_stage = 3, .offload_optimizer = to_host, .offload_parameters = true}},
      {{.tensor = 2}, 2},
      {{.tensor = 3}, 1, {.sequence_sharding = kShards}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      {{.pipeline = 2, .context = 2}, 2},
  };
  for (const char* json : {kOddGpt2, kOddLlama}) {
    expect_plans(json, table, [](Plan& plan) { plan.optimizer.optim = "adam_mini"; });
  }
}

void use_muon(Plan& plan) {
  plan.optimizer.optim = "muon";
  plan.update_rules.learning_rate = kRate;
  plan.update_rules.muon_learning_rate = 3e-3;
}

std::vector<PlanCase> plans_of_muon() {
  const OptimizerOffload to_host{OffloadDevice::kCpu};
  return {
      {{.data = 2}, 2},
      {{.data = 3}, 1, {.zero_stage = 1}},
      {{.data = 2}, 2, {.zero_stage = 2}},
      {{.data = 3}, 1, {.zero_stage = 3, .persistence_threshold = 100}},
      {{.data = 4}, 1, {.zero_stage = 1, .shard_ranks = 2}},
      {{.data = 2}, 1, {.zero_stage = 3, .offload_optimizer = to_host, .offload_parameters = true}},
      {{.tensor = 2}, 2},
      {{.tensor = 3}, 1, {.sequence_sharding = kShards}},
      {{.tensor = 4}, 1},
      {{.context = 2}, 1},
      {{.pipeline = 2}, 3, {.pipeline = {.schedule = "zb-h1"}}},
      {{.pipeline = 2}, 2, {.pipeline = {"interleaved", 2}}},
      {{.data = 2, .tensor = 3}, 1, {.zero_stage = 1}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3}},
      {{.data = 2, .context = 2}, 2, {.zero_stage = 2}},
      {{.pipeline = 2, .data = 2, .tensor = 2}, 2, {.zero_stage = 1, .offload_optimizer = to_host}},
      {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 3, .zero_in_pipeline = kAllow}},
  };
}

TEST(PlanTable, Muon) {
  for (const char* json : {kOddGpt2, kOddLlama}) {
    expect_plans(with_five_layers(json), plans_of_muon(), use_muon);
  }
}

TEST(PlanTable, MuonWithAdamWsSizeOfSteps) {
  const std::vector<PlanCase> some{
      {{.data = 2}, 2, {.zero_stage = 1}}, {{.data = 2, .tensor = 2}, 1, {.zero_stage = 2}}};
  expect_plans(kOddQwen3, some, [](Plan& plan) {
    use_muon(plan);
    plan.optimizer.muon = {
        .momentum = 0.9, .nesterov = false, .ns_steps = 3, .adjust_lr_fn = "match_rms_adamw"};
  });
  expect_plans(kOddT5, some, use_muon);
}

/// Matrices of single experts, distributed over ranks or not.
TEST(PlanTable, MuonOfExperts) {
  const std::vector<PlanCase> plans{
      {{.data = 2}, 2, {.zero_stage = 1}},
      {{.data = 2}, 1, {.zero_stage = 3, .expert_ranks = 2}},
      {{.data = 3}, 1, {.expert_ranks = 3}},
      {{.data = 4}, 1, {.zero_stage = 1, .expert_ranks = 2}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 2, .expert_ranks = 2}},
      {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 1, .expert_ranks = 2}},
  };
  expect_plans(kOddMixtral, plans, use_muon);
}

/// Adapter factors are matrices too; frozen parameters do not change.
TEST(PlanTable, MuonOfFrozenLayers) {
  expect_plans(
      kOddLlama,
      {{{.data = 2}, 1, {.zero_stage = 3}}, {{.tensor = 2}, 2}, {{.pipeline = 2}, 2}},
      use_muon,
      [](ModelSpec& spec) { spec.freeze = {"layers\\.0\\.", "q_proj"}; });
}

/// Learning rates and weight decays by name and by layer, which divide units into many segments,
/// with each optimizer.
TEST(PlanTable, LearningRatesByName) {
  const std::vector<PlanCase> plans{
      {{.data = 2}, 2, {.zero_stage = 1}},
      {{.data = 3}, 1, {.zero_stage = 3}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 2}},
      {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 1}},
      {{.pipeline = 3, .context = 2}, 2},
  };
  for (const char* optim : {"adamw", "lion_32bit", "sgd", "muon"}) {
    expect_plans(with_five_layers(kOddLlama), plans, [&](Plan& plan) {
      plan.optimizer.optim = optim;
      plan.update_rules = {
          .learning_rate = kRate,
          .learning_rates = {{"layers\\.1\\..*q_proj", 5e-3}, {"embed|lm_head", 0}, {"mlp", 2e-3}},
          .weight_decays = {{"norm", 0.3}, {"k_proj", 0}},
          .layer_decay = 0.8};
    });
  }
}

/// Optimizers with averaged weights. The last evaluation uses the averages of schedule-free AdamW.
TEST(PlanTable, OptimizersWithAverages) {
  const OptimizerOffload to_host{OffloadDevice::kCpu};
  const std::vector<PlanCase> plans{
      {{.data = 2}, 2, {.zero_stage = 1}},
      {{.data = 3}, 1, {.zero_stage = 3}},
      {{.data = 2, .tensor = 2}, 1, {.zero_stage = 2, .offload_optimizer = to_host}},
      {{.pipeline = 2, .data = 2}, 2, {.zero_stage = 1}},
      {{.context = 2, .tensor = 2}, 1},
  };
  for (const char* optim : {"schedule_free_adamw", "ademamix"}) {
    for (const char* json : {kOddGpt2, kOddLlama}) {
      expect_plans(json, plans, [&](Plan& plan) {
        plan.optimizer.optim = optim;
        plan.optimizer.ademamix = {.beta3 = 0.99, .t_alpha = 5, .t_beta3 = 5};
      });
    }
  }
}

/// 8-bit moments: blocks of 256 elements that span rows and tensor-parallel shards equal those of
/// one rank. Matrices with 4,096 or more elements have 8-bit moments.
TEST(PlanTable, EightBitMomentsOfPartsOfLayers) {
  constexpr const char* kGpt2 =
      R"({"model_type": "gpt2", "vocab_size": 101, "n_embd": 66, "n_layer": 2, "n_head": 3,
          "n_inner": 83, "n_positions": 32, "initializer_range": 0.1})";
  constexpr const char* kLlama =
      R"({"model_type": "llama", "vocab_size": 103, "hidden_size": 60, "intermediate_size": 71,
          "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
          "head_dim": 34, "initializer_range": 0.1})";
  // A moment halfway between two codes may round to either, depending on the last bit of a
  // gradient.
  constexpr double kOfCodes = 5e-5;
  constexpr int64_t kSteps = 3;
  const OptimizerOffload to_host{OffloadDevice::kCpu};
  const auto train = [](PlanCase plan, const char* json, const char* optim) {
    plan.plan.optimizer.optim = optim;
    plan.plan.sequence_length = kPlanLength;
    return train_under(plan, json, kSteps);
  };
  for (const char* json : {kGpt2, kLlama}) {
    const Trained one = train({}, json, "adamw_8bit");
    const Trained exact = train({}, json, "adamw");
    double of_rounding = 0;
    for (const auto& [name, gradient] : exact.gradients.back()) {
      of_rounding = std::max(of_rounding, numbers::error(one.gradients.back().at(name), gradient));
    }
    EXPECT_GT(of_rounding, 5 * kOfCodes);
    for (const PlanCase& plan : std::vector<PlanCase>{
             {{.data = 2}, 2, {.zero_stage = 1}},
             {{.tensor = 2}, 2},
             {{.tensor = 3}, 1, {.sequence_sharding = kShards}},
             {{.data = 2, .tensor = 2}, 1, {.zero_stage = 3}},
             {{.data = 2, .tensor = 3}, 1, {.zero_stage = 1, .offload_optimizer = to_host}},
             {{.context = 2, .tensor = 2}, 1, {.zero_stage = 2}},
             {{.pipeline = 2, .tensor = 2}, 2}}) {
      const Trained found = train(plan, json, "adamw_8bit");
      for (size_t step = 0; step < one.losses.size(); ++step) {
        const std::string what = fmt::format("{}, step {}", plan_name(plan), step);
        numbers::expect_loss(found.losses[step], one.losses[step], what);
        numbers::expect_gradients(found.gradients[step], one.gradients[step], what, kOfCodes);
      }
    }
  }
}

std::string refusal(const Plan& plan, const mesh::Mesh& mesh = {}) {
  std::string message;
  comm::run_ranks(mesh.ranks(), [&](comm::Communicator& world) {
    ParallelGroups axes(world, mesh);
    const model::ModelConfig config = model::parse_model_config(kOddLlama, "a test");
    try {
      (void)parallelize({config, at::kFloat, at::kCPU, fill_at_random(config, 3)}, plan, axes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      if (world.rank() == 0) {
        message = error.message() + " | " + error.remedy();
      }
    }
  });
  return message;
}

TEST(UpdateRules, OfAPlanAreRefusedBeforeTraining) {
  Plan plan;
  plan.update_rules.learning_rates = {{"layers\\.7", 1e-3}};
  const std::string unknown = refusal(plan, {.pipeline = 2});
  EXPECT_NE(
      unknown.find("training.learning_rates: 'layers\\.7' matches no parameter name"),
      std::string::npos)
      << unknown;
  EXPECT_NE(unknown.find("lm_head.weight"), std::string::npos) << unknown;
  plan.update_rules.learning_rates = {{"layers(", 1e-3}};
  EXPECT_NE(refusal(plan).find("is not a regular expression"), std::string::npos);
  plan.update_rules = {};
  plan.optimizer.optim = "muon";
  plan.offload_optimizer.device = OffloadDevice::kNvme;
  EXPECT_NE(refusal(plan).find("parallel.offload_optimizer.device=nvme"), std::string::npos);
}

}  // namespace update_rules_test
}  // namespace lockstep::parallel
