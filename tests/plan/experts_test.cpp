// Tests mixtures of experts in the planner: all parameters need memory, but only those of a token's
// experts need operations.
#include <gtest/gtest.h>

#include "model/description.h"
#include "model/operations.h"
#include "plan/cost/cost.h"
#include "plan/memory/activations.h"
#include "plan/memory/memory.h"
#include "plan/search.h"
#include "plan/simulate.h"
#include "plan/workload/blocks.h"
#include "plan/workload/model_sizes.h"

namespace lockstep::plan {
namespace experts_test {

model::ModelConfig mixed() {
  return model::parse_model_config(
      R"({"model_type": "qwen3_moe", "vocab_size": 97, "hidden_size": 20, "intermediate_size": 31,
          "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4,
          "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 11,
          "mlp_only_layers": [0, 3]})",
      "a test");
}

Job job_of(const model::ModelConfig& model) {
  Job job;
  job.model = model;
  job.set_data_length(64);
  job.micro_batch = 2;
  job.global_batch = 16;
  return job;
}

TEST(PlannedExperts, BlocksAreOfTwoKindsWithTheParametersOfTheModel) {
  const model::ModelConfig config = mixed();
  const BlockCounts blocks = blocks_of(config);
  EXPECT_EQ(blocks.count(BlockKind::kDecoder), 2);
  EXPECT_EQ(blocks.count(BlockKind::kSparseDecoder), 3);
  EXPECT_EQ(blocks_of(config, 2, 2).count(BlockKind::kSparseDecoder), 1);
  EXPECT_EQ(blocks_of(config, 0, 1).count(BlockKind::kSparseDecoder), 0);
  const ModelSizes& sizes = sizes_of(config);
  EXPECT_EQ(sizes.parameters.total(), static_cast<double>(model::parameter_count(config)));
  const LinearSizes& sparse = sizes.linears_of(BlockKind::kSparseDecoder);
  EXPECT_EQ(sparse.experts, 3 * 3 * 11 * 20);
  EXPECT_EQ(sparse.own - sparse.active, 3 * 11 * 20);  // one of three experts
  EXPECT_EQ(sizes.linears_of(BlockKind::kDecoder).experts, 0);
  EXPECT_EQ(inner_width(config, BlockKind::kSparseDecoder), 22);
  EXPECT_EQ(inner_width(config, BlockKind::kDecoder), 31);
}

TEST(PlannedExperts, ActiveParametersAreTold) {
  EXPECT_EQ(
      parameters_text(model::preset("mixtral-8x7b")),
      "46.703 billion parameters, 12.880 of them active");
  EXPECT_EQ(parameters_text(model::preset("llama2-7b")), "6.738 billion parameters");
}

/// An additional expert increases only the memory; an additional expert per token also increases
/// the step time.
TEST(PlannedExperts, OperationsAreThoseOfATokensExperts) {
  const model::ModelConfig config = mixed();
  model::ModelConfig more = config, wider = config;
  more.experts.count = 4;
  wider.experts.per_token = 3;
  EXPECT_EQ(model_flops(job_of(more)), model_flops(job_of(config)));
  EXPECT_GT(model_flops(job_of(wider)), model_flops(job_of(config)));
  EXPECT_GT(model::parameter_count(more), model::parameter_count(config));
  EXPECT_EQ(model::parameter_count(wider), model::parameter_count(config));
  const auto kept = [](const model::ModelConfig& model) {
    return block_activations(job_of(model), BlockKind::kSparseDecoder, Recompute::kNone);
  };
  EXPECT_EQ(kept(more), kept(config));
  EXPECT_GT(kept(wider), kept(config));
}

/// A rank holds the states of its own experts: 1/N of all experts with expert-parallel size N.
TEST(PlannedExperts, SpreadOverRanksTheyAreHeldByParts) {
  const model::ModelConfig config = mixed();
  Job job = job_of(config);
  job.mesh.data = 4;
  const auto parameters = [&](int zero_stage, int expert_ranks) {
    job.zero_stage = zero_stage;
    job.expert_ranks = expert_ranks;
    return estimate_memory(job).front().peak.parameters;
  };
  const double whole = parameters(0, 1), all = count_parameters(config).total();
  const double experts = 3 * 3 * 3 * 11 * 20;  // of three blocks
  EXPECT_NEAR(parameters(0, 2) / whole, (all - experts / 2) / all, 1e-9);
  EXPECT_NEAR(parameters(0, 4) / whole, (all - experts * 3 / 4) / all, 1e-9);
  EXPECT_EQ(parameters(3, 2), parameters(3, 1));  // sharded in any case
}

/// Each rank sends k rows per token four times, except for its own experts.
TEST(PlannedExperts, TokensOnTheirWayTakeTime) {
  const model::ModelConfig model = model::preset("qwen3-30b-a3b");
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 16);
  Job job = job_of(model);
  job.set_data_length(4096);
  job.mesh.data = 16;
  job.global_batch = 32;
  const NodeGroup& node = cluster.slowest();
  const auto exchange = [&](int ranks) {
    job.expert_ranks = ranks;
    return block_seconds(job, cluster, node, BlockKind::kSparseDecoder).of(Kernels::kExperts);
  };
  EXPECT_EQ(exchange(1), 0);
  const double tokens = 2.0 * 4096, bytes = tokens * 8 * 2048 * job.compute_bytes();
  EXPECT_NEAR(exchange(8), 4 * all_to_all_seconds(cluster, node, {8, 8}, bytes), 1e-9);
  EXPECT_GT(exchange(8), exchange(2));
  EXPECT_GT(exchange(16), 2 * exchange(8));  // between nodes
  EXPECT_GT(all_to_all_seconds(cluster, node, {8, 8}, bytes), bytes * 7 / 8 / node.peer_bandwidth);
}

/// Fewer ranks reduce the gradients of an expert, and each updates fewer experts.
TEST(PlannedExperts, SpreadOnesAreSummedOverFewerRanks) {
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 16);
  Job job = job_of(model::preset("mixtral-8x7b"));
  job.mesh.data = 16;
  for (const int zero_stage : {0, 1, 3}) {
    job.zero_stage = zero_stage;
    job.expert_ranks = 1;
    const Step together = simulate(job, cluster);
    job.expert_ranks = 8;
    const Step spread = simulate(job, cluster);
    EXPECT_LT(spread.data, together.data) << zero_stage;
    EXPECT_LE(spread.optimizer, together.optimizer * (1 + 1e-9)) << zero_stage;
  }
}

TEST(PlannedExperts, TheSearchSpreadsThemAndTheFileSaysSo) {
  SearchRequest request;
  request.base = job_of(model::preset("qwen3-30b-a3b"));
  request.base.set_data_length(4096);
  request.base.global_batch = 64;
  request.cluster = uniform_cluster(find_device("h100-80gb"), 16);
  request.pipeline = 1;
  request.micro_batch = 1;
  const SearchResult searched = search(request);
  ASSERT_FALSE(searched.best.empty());
  request.expert = 1;
  const SearchResult together = search(request);
  EXPECT_GT(searched.considered, together.considered);
  if (!together.best.empty()) {
    EXPECT_LE(searched.best.front().step.step_seconds, together.best.front().step.step_seconds);
  }
  request.expert = 8;
  for (const Candidate& candidate : search(request).best) {
    EXPECT_EQ(candidate.job.expert_ranks, 8);
    EXPECT_NE(plan_yaml(candidate.job, {}).find("  expert: 8\n"), std::string::npos);
    EXPECT_NE(plan_line(candidate.job).find("experts over 8"), std::string::npos);
  }
  request.expert = 3;
  EXPECT_TRUE(search(request).best.empty());
}

}  // namespace experts_test
}  // namespace lockstep::plan
