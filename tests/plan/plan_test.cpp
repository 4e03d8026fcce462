// Tests memory estimates, costs, splits and reports of the planner.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "model/operations.h"
#include "plan/cost/kernels.h"
#include "plan/memory/activations.h"
#include "plan/search.h"

namespace lockstep::plan {
namespace plan_test {

Job gpt2_job(const std::string& preset = "gpt2") {
  Job job;
  job.model = model::preset(preset);
  job.sequence = 1024;
  job.global_batch = 64;
  job.micro_batch = 4;
  return job;
}

std::string error_of(const std::string& yaml) {
  try {
    parse_cluster(yaml, "c.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  ADD_FAILURE() << "no error for " << yaml;
  return "";
}

TEST(Job, CountsTheParametersOfEveryFamily) {
  for (const char* name : {"gpt2", "gpt2-xl"}) {
    const model::ModelConfig config = model::preset(name);
    EXPECT_EQ(count_parameters(config).total(), static_cast<double>(model::parameter_count(config)))
        << name;
  }
}

TEST(Job, SplitsLayersEvenly) {
  EXPECT_EQ(split_layers(12, 4), (std::vector<int64_t>{3, 3, 3, 3}));
  // If the layers are not divisible, the embedding and the head count as one block each.
  EXPECT_EQ(split_layers(22, 8), (std::vector<int64_t>{2, 3, 3, 3, 3, 3, 3, 2}));
  EXPECT_EQ(split_layers(126, 8), (std::vector<int64_t>{15, 16, 16, 16, 16, 16, 16, 15}));
  for (int64_t stages = 1; stages <= 9; ++stages) {
    int64_t sum = 0;
    for (const int64_t count : split_layers(9, stages)) {
      sum += count;
    }
    EXPECT_EQ(sum, 9);
  }
}

TEST(Job, SplitsByCostWhereItsSoftwareDoes) {
  Job job = gpt2_job();
  job.model.layers = 4;
  job.model.sliding_windows.resize(4);
  job.mesh.pipeline = 2;
  EXPECT_EQ(split_layers(job), (std::vector<int64_t>{2, 2}));
  job.software.balances_stages = true;
  EXPECT_EQ(
      split_layers(job), (std::vector<int64_t>{4, 0}));  // the head costs more than four blocks
  job.model.vocab_size = 8192;
  EXPECT_EQ(split_layers(job), (std::vector<int64_t>{2, 2}));
  job.split = {1, 3};
  EXPECT_EQ(split_layers(job), (std::vector<int64_t>{1, 3}));
}

TEST(Memory, AHeadIsWhereItsStageIs) {
  Job job = gpt2_job();
  job.mesh.pipeline = 4;
  const auto logits_of = [&](schedule::Kind kind, int virtual_stages) {
    job.schedule = kind;
    job.virtual_stages = virtual_stages;
    std::vector<bool> has;
    int64_t blocks = 0;
    for (const StageMemory& stage : estimate_memory(job)) {
      has.push_back(stage.peak.logits > 0);
      blocks += stage.blocks;
    }
    EXPECT_EQ(blocks, job.model.layers);
    return has;
  };
  using schedule::Kind;
  EXPECT_EQ(logits_of(Kind::kOneFOneB, 1), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(logits_of(Kind::kInterleaved, 3), (std::vector<bool>{false, false, false, true}));
  // The second half of the V returns to the first rank.
  EXPECT_EQ(logits_of(Kind::kZbV, 2), (std::vector<bool>{true, false, false, false}));
}

TEST(Memory, ReplicasShareWithinTheirGroupsAlone) {
  Job job = gpt2_job("gpt2-xl");
  job.zero_stage = 3;
  job.mesh.data = 8;
  const Memory eight = estimate_memory(job)[0].peak;
  job.mesh.data = 32;
  const Memory all = estimate_memory(job)[0].peak;
  job.shard_ranks = 8;
  const Memory groups = estimate_memory(job)[0].peak;
  EXPECT_DOUBLE_EQ(groups.optimizer, eight.optimizer);
  EXPECT_DOUBLE_EQ(groups.parameters, eight.parameters);
  EXPECT_GT(groups.optimizer, 3 * all.optimizer);
}

TEST(Memory, StatesKeptForARestartAreEachRanksShare) {
  Job job = gpt2_job();
  job.mesh.data = 4;
  const Memory none = estimate_memory(job)[0].peak;
  job.in_memory_checkpoints = 2;
  const auto state = static_cast<double>(model::parameter_count(job.model)) *
                     (job.software.weight_bytes + job.software.optimizer_bytes);
  for (const int stage : {0, 1, 3}) {
    job.zero_stage = stage;
    EXPECT_NEAR(estimate_memory(job)[0].peak.host, 2 * state / 4, 1e-6 * state);
  }
  job.zero_stage = 0;
  EXPECT_DOUBLE_EQ(estimate_memory(job)[0].peak.total(), none.total());
  job.software.device_is_host = true;
  const Memory kept = estimate_memory(job)[0].peak;
  EXPECT_EQ(kept.host, 0);
  EXPECT_NEAR(kept.kept, 2 * state / 4, 1e-6 * state);
  EXPECT_GT(kept.total(), kept.kept);
}

TEST(Memory, OnACpuHostMemoryIsTheDevices) {
  Job job = gpt2_job();
  job.software.device_is_host = true;
  const double plain = estimate_memory(job)[0].peak.total();
  job.offload = Offload::kAll;
  EXPECT_EQ(estimate_memory(job)[0].peak.host, 0);
  EXPECT_GE(estimate_memory(job)[0].peak.total(), plain);
  job.offload_to = OffloadTo::kNvme;
  EXPECT_LT(estimate_memory(job)[0].peak.total(), 0.9 * plain);
}

TEST(Simulate, GroupsThatShareKeepGathersOffTheNetwork) {
  Job job = gpt2_job("gpt2-xl");
  job.zero_stage = 3;
  job.mesh.data = 32;
  Cluster cluster = uniform_cluster(find_device("h100-80gb"), 32);
  cluster.groups[0].network_bandwidth = 1e9;
  const double all = simulate(job, cluster).step_seconds;
  job.shard_ranks = 8;
  const double groups = simulate(job, cluster).step_seconds;
  EXPECT_LT(groups, 0.8 * all);
  EXPECT_NE(plan_line(job).find("zero 3 in groups of 8"), std::string::npos);
  EXPECT_NE(plan_yaml(job).find("  shard_ranks: 8\n"), std::string::npos);
  SearchRequest request;
  request.base = job;
  request.cluster = cluster;
  request.zero_stage = 3;
  request.tensor = 1;
  request.pipeline = 1;
  const SearchResult found = search(request);
  ASSERT_FALSE(found.best.empty());
  EXPECT_EQ(found.best[0].job.shard_ranks, 8);
  request.shard_ranks = 5;
  const SearchResult none = search(request);
  EXPECT_TRUE(none.best.empty());
  EXPECT_NE(none.refused.find("states sharded over 5 of 32 ranks"), none.refused.end());
}

TEST(Simulate, MicroBatchesAreSummed) {
  Job job = gpt2_job("gpt2-xl");
  const Cluster one = uniform_cluster(find_device("h100-80gb"), 1);
  const double before = simulate(job, one).step_seconds;
  job.software.sum_bytes_moved = 10;
  const double parameters = count_parameters(job.model).total();
  const double sums = memory_seconds(one.groups[0].device, 10 * parameters) *
                      static_cast<double>(job.micro_batches());
  EXPECT_NEAR(simulate(job, one).step_seconds - before, sums, 0.01 * sums);
}

TEST(Simulate, UlyssesTradesWhereTheRingPassesRound) {
  Job job = gpt2_job("gpt2-xl");
  job.sequence = 32768;
  job.micro_batch = 1;
  job.mesh.context = 8;
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 8);
  job.context_attention = ContextAttention::kUlysses;
  const double traded = simulate(job, cluster).step_seconds;
  job.context_attention = ContextAttention::kRing;
  job.software.ring_in_memory = true;  // scores of this length are in memory
  EXPECT_GT(simulate(job, cluster).step_seconds, 1.5 * traded);
}

// Stage s takes block[s] per layer, plus edge[s].
std::vector<int64_t> balance(
    int64_t layers, const std::vector<double>& block, const std::vector<double>& edge) {
  return balance_layers(
      layers, static_cast<int64_t>(block.size()), [&](int64_t stage, int64_t first, int64_t end) {
        return block[stage] * static_cast<double>(end - first) + edge[stage];
      });
}

TEST(Job, BalancesUnequalStages) {
  // A device of half the speed gets half the blocks; the time of the head counts.
  EXPECT_EQ(balance(9, {1, 2}, {0, 0}), (std::vector<int64_t>{6, 3}));
  EXPECT_EQ(balance(10, {1, 1}, {0, 4}), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(balance(2, {1, 1, 1}, {0, 0, 0}).size(), 3U);
  // Stages that are not the slowest are balanced: {6, 6, 3, 3, 1, 1} would be equally fast.
  EXPECT_EQ(
      balance(20, {1, 1, 2, 2, 2, 2}, {0, 0, 0, 0, 0, 0}),
      (std::vector<int64_t>{6, 6, 2, 2, 2, 2}));
}

// Returns the fastest slowest stage over all splits of `layers` with at least one layer per stage.
double best_by_exhaustion(
    int64_t layers,
    const std::vector<double>& block,
    const std::vector<double>& edge,
    size_t stage) {
  if (stage + 1 == block.size()) {
    return block[stage] * static_cast<double>(layers) + edge[stage];
  }
  double best = 1e30;
  const auto later = static_cast<int64_t>(block.size() - stage - 1);
  for (int64_t mine = 1; mine <= layers - later; ++mine) {
    best = std::min(
        best,
        std::max(
            block[stage] * static_cast<double>(mine) + edge[stage],
            best_by_exhaustion(layers - mine, block, edge, stage + 1)));
  }
  return best;
}

TEST(Job, BalancesAsWellAsExhaustion) {
  for (uint64_t draw = 0; draw < 60; ++draw) {
    const uint64_t key = derive_key(7, draw);
    const size_t stages = 2 + random_bits(key, 0) % 4;
    const auto layers = static_cast<int64_t>(stages + random_bits(key, 1) % 8);
    std::vector<double> block, edge;
    for (size_t stage = 0; stage < stages; ++stage) {
      block.push_back(0.2 + random_uniform(key, 10 + stage));
      edge.push_back(2 * random_uniform(key, 20 + stage));
    }
    const std::vector<int64_t> counts = balance(layers, block, edge);
    double slowest = 0;
    int64_t sum = 0;
    for (size_t stage = 0; stage < stages; ++stage) {
      slowest = std::max(slowest, block[stage] * static_cast<double>(counts[stage]) + edge[stage]);
      sum += counts[stage];
    }
    EXPECT_EQ(sum, layers);
    EXPECT_DOUBLE_EQ(slowest, best_by_exhaustion(layers, block, edge, 0));
  }
}

TEST(Memory, StatesAreWhatZeroSays) {
  Job job = gpt2_job("gpt2-xl");
  const double parameters = count_parameters(job.model).total();
  job.mesh.data = 8;
  const auto states = [&](int stage) {
    job.zero_stage = stage;
    const Memory memory = estimate_memory(job)[0].peak;
    return memory.parameters + memory.gradients + memory.optimizer;
  };
  EXPECT_NEAR(states(0), parameters * 16, 1);
  EXPECT_NEAR(states(1), parameters * (4 + 12.0 / 8), 1);
  EXPECT_NEAR(states(2), parameters * (2 + 14.0 / 8), 1);
  EXPECT_NEAR(states(3), parameters * 16 / 8, 1);
}

TEST(Memory, ActivationsAreKorthikantisFormula) {
  // sbh (34 + 5 a s / h) with dropout and scores in memory; sbh (10 + 24 / t + 5 a s / (h t)) with
  // tensor ranks; all of it over t with sequence parallelism (equations 1, 2 and 4).
  Job job = gpt2_job("gpt2-xl");
  job.software.fused_attention = false;
  job.software.dropout = true;
  const double h = 1600;
  const double a = 25;
  const double sbh = 1024 * 4 * h;
  EXPECT_NEAR(
      block_activations(job, BlockKind::kDecoder, Recompute::kNone) /
          (sbh * (34 + 5 * a * 1024 / h)),
      1,
      0.01);
  job.mesh.tensor = 5;
  EXPECT_NEAR(
      block_activations(job, BlockKind::kDecoder, Recompute::kNone) /
          (sbh * (10 + 24 / 5.0 + 5 * a * 1024 / h / 5)),
      1,
      0.01);
  job.sequence_parallel = true;
  EXPECT_NEAR(
      block_activations(job, BlockKind::kDecoder, Recompute::kNone) /
          (sbh / 5 * (34 + 5 * a * 1024 / h)),
      1,
      0.01);
  EXPECT_NEAR(block_activations(job, BlockKind::kDecoder, Recompute::kFull), sbh * 2 / 5, 1);
}

TEST(Memory, SumsOfMicroBatchesAreWide) {
  Job job = gpt2_job();
  job.software.sum_bytes = 4;
  job.global_batch = job.micro_batch;
  const double narrow = estimate_memory(job)[0].peak.gradients;
  job.global_batch = 2 * job.micro_batch;
  EXPECT_DOUBLE_EQ(estimate_memory(job)[0].peak.gradients, 2 * narrow);
}

TEST(Memory, SelectiveRecomputationDropsTheActivationsOutput) {
  Job job = gpt2_job();
  const double kept = block_activations(job, BlockKind::kDecoder, Recompute::kNone);
  EXPECT_DOUBLE_EQ(
      kept - block_activations(job, BlockKind::kDecoder, Recompute::kActivation),
      4.0 * 1024 * 2 * 4 * 768);
}

TEST(Memory, LogitsAreMadeInRunsOfALimit) {
  Job job = gpt2_job();
  job.software.logit_bytes = 2;
  const double whole = estimate_memory(job)[0].peak.logits;
  EXPECT_DOUBLE_EQ(whole, 4.0 * 1024 * 50257 * 2);
  job.software.logit_limit = whole / 2;
  EXPECT_NEAR(estimate_memory(job)[0].peak.logits, whole / 2, whole * 0.2);
}

TEST(Memory, TheFirstStageOfOneFOneBHoldsMost) {
  Job job = gpt2_job();
  job.mesh.pipeline = 4;
  const std::vector<StageMemory> stages = estimate_memory(job);
  EXPECT_EQ(stages.front().in_flight, 4);
  EXPECT_EQ(stages.back().in_flight, 1);
  EXPECT_GT(stages[1].peak.activations, stages[2].peak.activations);
}

TEST(Memory, AdaptersLeaveTheWeightsFrozen) {
  Job job = gpt2_job("gpt2-xl");
  const double parameters = count_parameters(job.model).total();
  const double whole = estimate_memory(job)[0].peak.total();
  job.adapter_rank = 16;
  // h to 3 h (one matrix), h to h, h to 4 h, 4 h to h: 16 (4 + 2 + 5 + 5) h a block.
  const double adapters = 48.0 * 16 * 16 * 1600;
  const Memory memory = estimate_memory(job)[0].peak;
  EXPECT_NEAR(memory.parameters, 2 * parameters + 2 * adapters, 1);
  EXPECT_NEAR(memory.optimizer, 12 * adapters, 1);
  job.frozen_bytes = 0.53;
  // Only linear layers: embeddings, norms and biases stay in 16 bits.
  const double linears = 48.0 * 12 * 1600 * 1600;
  EXPECT_NEAR(
      estimate_memory(job)[0].peak.parameters,
      0.53 * linears + 2 * (parameters - linears) + 2 * adapters,
      1);
  EXPECT_LT(estimate_memory(job)[0].peak.total(), whole / 2);
  const Cluster one = uniform_cluster(find_device("h100-80gb"), 1);
  const double with = simulate(job, one).step_seconds;
  job.adapter_rank = 0;
  EXPECT_LT(with, simulate(job, one).step_seconds);  // frozen weights have no gradients
}

TEST(Memory, FilesTakeWhatTheHostWould) {
  Job job = gpt2_job("gpt2-xl");
  job.offload = Offload::kOptimizer;
  const Memory host = estimate_memory(job)[0].peak;
  job.offload_to = OffloadTo::kNvme;
  const Memory files = estimate_memory(job)[0].peak;
  EXPECT_EQ(files.nvme, host.host);
  EXPECT_LT(files.host, host.host);
  EXPECT_EQ(files.total(), host.total());
}

TEST(Cost, ProductsAreRooflines) {
  const Physics physics;
  const Device& device = find_device("A100");
  const double large = product_seconds(physics, device, Precision::kMixed16, 1, 8192, 8192, 8192);
  const double rate = 2 * std::pow(8192.0, 3) / large;
  EXPECT_LE(rate, device.flops16 * device.efficiency.matrix16);
  EXPECT_GE(rate, device.flops16 * device.efficiency.matrix16 * 0.9);
  // A vector-matrix product is limited by memory; odd sizes are slower.
  EXPECT_GT(
      product_seconds(physics, device, Precision::kMixed16, 1, 1, 8192, 8192),
      2 * 8192.0 * 8192 / device.memory_bandwidth);
  EXPECT_GT(
      product_seconds(physics, device, Precision::kMixed16, 1, 8192, 8200, 8192),
      product_seconds(physics, device, Precision::kMixed16, 1, 8192, 8256, 8192));
}

TEST(Collectives, AGroupOfOneIsFreeAndNodesAreSlower) {
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 64);
  const NodeGroup& node = cluster.groups[0];
  EXPECT_EQ(all_reduce_seconds(cluster, node, {1, 1}, 1e9), 0);
  const double inside = all_reduce_seconds(cluster, node, {8, 8}, 1e9);
  EXPECT_NEAR(inside, 2e9 * 7 / 8 / (450e9 * cluster.physics.link_efficiency), inside * 0.05);
  EXPECT_GT(all_reduce_seconds(cluster, node, {8, 1}, 1e9), 4 * inside);
  EXPECT_LT(all_gather_seconds(cluster, node, {8, 8}, 1e9), inside);
}

TEST(Simulate, PartsAddUpAndMoreDevicesAreFaster) {
  Job job = gpt2_job("gpt2-xl");
  double before = 1e9;
  for (const int data : {1, 2, 8, 16}) {
    job.mesh.data = data;
    const Step step = simulate(job, uniform_cluster(find_device("h100-80gb"), data));
    const double sum =
        step.compute + step.recompute + step.tensor + step.pipeline + step.after_pipeline();
    EXPECT_NEAR(sum, step.step_seconds, 1e-9);
    EXPECT_LT(step.step_seconds, before);
    before = step.step_seconds;
    EXPECT_GT(step.utilisation, 0.1);
    EXPECT_LT(step.utilisation, 0.9);
  }
}

TEST(Simulate, RecomputationCostsAThirdAndPipelinesTheirBubble) {
  Job job = gpt2_job("gpt2-xl");
  const Cluster one = uniform_cluster(find_device("h100-80gb"), 1);
  const double plain = simulate(job, one).step_seconds;
  job.recompute = Recompute::kFull;
  EXPECT_NEAR(simulate(job, one).step_seconds / plain, 4.0 / 3, 0.06);
  job.recompute = Recompute::kNone;
  job.mesh.pipeline = 4;
  const Step piped = simulate(job, uniform_cluster(find_device("h100-80gb"), 4));
  EXPECT_GT(piped.bubble, 3.0 / (16 + 3));  // the head makes the last stage the slowest
  EXPECT_LT(piped.bubble, 3.0 / (16 + 3) + 0.08);
}

TEST(Search, FindsWhatExhaustionFinds) {
  SearchRequest request;
  request.base = gpt2_job("gpt2-xl");
  request.cluster = uniform_cluster(find_device("a100-40gb"), 8);
  const SearchResult pruned = search(request);
  request.best = 100000;  // no plan is excluded by a bound
  const SearchResult all = search(request);
  ASSERT_EQ(pruned.best.size(), 5U);
  EXPECT_EQ(all.bounded, 0);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(pruned.best[i].step.step_seconds, all.best[i].step.step_seconds);
    EXPECT_LE(pruned.best[i].memory.total(), usable_bytes(request.cluster.groups[0].device));
  }
  EXPECT_EQ(
      pruned.considered,
      pruned.out_of_memory + pruned.needless + pruned.bounded + pruned.simulated);
  EXPECT_EQ(search_table(pruned, request).find("1. data") == std::string::npos, false);
}

TEST(Search, IsCompleteOnUnequalDevices) {
  SearchRequest request;
  request.base = gpt2_job("gpt2-xl");
  // One device is six times as fast, with another link: a bound from the slow devices would exclude
  // good plans.
  request.cluster = parse_cluster(
      "nodes:\n  - {count: 1, devices: 4, device: h100-80gb}\n  - {count: 1, devices: 4, device: "
      "v100-32gb, peer_gb_s: 40}\n",
      "c");
  const SearchResult pruned = search(request);
  request.best = 100000;
  const SearchResult all = search(request);
  ASSERT_EQ(pruned.best.size(), 5U);
  EXPECT_GT(pruned.bounded, 0);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(pruned.best[i].step.step_seconds, all.best[i].step.step_seconds);
    EXPECT_TRUE(fits(pruned.best[i].job, request.cluster));
  }
}

TEST(Simulate, AnEvenSplitWaitsForTheSlowest) {
  Job job = gpt2_job();
  job.mesh.data = 2;
  const auto seconds = [&](const char* first, const char* second) {
    return simulate(
               job,
               parse_cluster(
                   std::string("nodes:\n  - {devices: 1, device: ") + first +
                       "}\n  - {devices: 1, device: " + second + "}\n",
                   "c"))
        .step_seconds;
  };
  EXPECT_GT(seconds("h100-80gb", "v100-32gb"), 3 * seconds("h100-80gb", "h100-80gb"));
  EXPECT_NEAR(seconds("h100-80gb", "v100-32gb") / seconds("v100-32gb", "h100-80gb"), 1, 0.05);
}

TEST(Search, KeepsWhatIsGivenAndSaysWhatDoesNotFit) {
  SearchRequest request;
  request.base = gpt2_job("gpt2-xl");
  request.cluster = uniform_cluster(find_device("rtx-4090"), 4);
  request.tensor = 2;
  const SearchResult result = search(request);
  ASSERT_FALSE(result.best.empty());
  EXPECT_EQ(result.best[0].job.mesh.tensor, 2);
  SearchRequest fixed = request;
  fixed.recompute = Recompute::kFull;
  fixed.offload = Offload::kOptimizer;
  for (const Candidate& candidate : search(fixed).best) {
    EXPECT_EQ(candidate.job.recompute, Recompute::kFull);
    EXPECT_EQ(candidate.job.offload, Offload::kOptimizer);
  }
  EXPECT_NE(result.best[0].reason.find("does not fit on one device"), std::string::npos);
  request.cluster = uniform_cluster(find_device("titan-rtx"), 1);
  request.tensor.reset();
  request.base.model.layers = 400;
  const SearchResult none = search(request);
  EXPECT_TRUE(none.best.empty());
  EXPECT_GT(none.smallest->memory.total(), 24e9);
}

TEST(Search, GivesUnequalDevicesUnequalShares) {
  SearchRequest request;
  request.base = gpt2_job("gpt2-xl");
  request.pipeline = 2;
  request.cluster = parse_cluster(
      "nodes:\n  - {count: 1, devices: 1, device: h100-80gb}\n  - {count: 1, devices: 1, device: "
      "v100-32gb}\n",
      "c");
  const SearchResult result = search(request);
  ASSERT_FALSE(result.best.empty());
  bool split = false;
  for (const Candidate& candidate : result.best) {
    split = split ||
            (!candidate.job.split.empty() && candidate.job.split[0] > 2 * candidate.job.split[1]);
  }
  EXPECT_TRUE(split) << search_table(result, request);
}

TEST(Search, IsQuickOnThousandsOfDevices) {
  SearchRequest request;
  request.base = gpt2_job("gpt2-xl");
  request.base.global_batch = 16384;
  request.cluster = uniform_cluster(find_device("h100-80gb"), 16384);
  EXPECT_FALSE(search(request).best.empty());
}

TEST(Report, WritesPlansAndTraces) {
  Job job = gpt2_job();
  job.mesh = {.pipeline = 2, .data = 2, .context = 1, .tensor = 2};
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 8);
  const std::string yaml = plan_yaml(job);
  EXPECT_NE(yaml.find("  pipeline: 2\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("  gradient_accumulation_steps: 8\n"), std::string::npos) << yaml;
  const auto trace = nlohmann::json::parse(plan_trace(job, cluster));
  // A name per rank, a forward and a backward action per micro-batch, and the parts outside the
  // pipeline.
  EXPECT_GT(trace["traceEvents"].size(), 2U + 2 * 2 * 8);
  const double end = simulate(job, cluster).step_seconds;
  double last = 0;
  for (const auto& event : trace["traceEvents"]) {
    last = std::max(last, event.value("ts", 0.0) + event.value("dur", 0.0));
  }
  EXPECT_NEAR(last / 1e6, end, 1e-9);
  const std::string svg = plan_svg(job, cluster);
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_NE(svg.find(fmt::format("to {:.6g}</title>", end)), std::string::npos);
  EXPECT_NE(svg.find("optimizer from"), std::string::npos);
  EXPECT_NE(explain(job, cluster).find("where a step's time goes"), std::string::npos);
}

TEST(Devices, AreFoundByManyNames) {
  for (const char* name :
       {"H100-80GB-SXM", "h100", "A100-40GB", "RTX 4090", "GB200", "titan-rtx", "cpu"}) {
    EXPECT_NO_THROW(find_device(name)) << name;
  }
  try {
    find_device("h100-80bg");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'h100-80gb'?"), std::string::npos)
        << error.what();
  }
  for (const Device& device : device_library()) {
    EXPECT_GT(std::string(device.source).size(), 10U);
    EXPECT_GT(device.flops16, 0);
  }
}

TEST(Cluster, HasTheDevicesThatAreAskedFor) {
  const Cluster twelve = uniform_cluster(find_device("h100-80gb"), 12);
  EXPECT_EQ(twelve.devices(), 12);
  ASSERT_EQ(twelve.groups.size(), 2U);
  EXPECT_EQ(twelve.groups[1].devices_per_node, 4);
  EXPECT_FALSE(twelve.unequal());
  EXPECT_EQ(twelve.common_node_size(), 4);
  EXPECT_EQ(twelve.node_of(7), 0);
  EXPECT_EQ(twelve.node_of(8), 1);
  EXPECT_EQ(uniform_cluster(find_device("cpu"), 3).groups.size(), 1U);
}

TEST(Simulate, WaitsForTheSlowestLinksOfAll) {
  Job job = gpt2_job("gpt2-xl");
  job.mesh.data = 16;
  const auto seconds = [&](const char* network) {
    const std::string nodes = std::string("nodes:\n  - {devices: 8, device: a100-80gb}\n") +
                              "  - {devices: 8, device: h100-80gb, network_gb_s: " + network +
                              "}\n";
    return simulate(job, parse_cluster(nodes, "c")).step_seconds;
  };
  EXPECT_GT(seconds("0.5"), 1.5 * seconds("25"));
}

TEST(ClusterFile, TellsEverythingThatIsWrong) {
  const std::string text = error_of(
      "nodes:\n  - {cuont: 2, devices: -1, device: h200x, peer_gb_s: fast}\n  - {devices: 8, "
      "device: {tflops16: 1e9}}\n");
  EXPECT_NE(text.find("Did you mean 'count'?"), std::string::npos) << text;
  EXPECT_NE(text.find("nodes[0].devices is -1"), std::string::npos) << text;
  EXPECT_NE(text.find("unknown device 'h200x'"), std::string::npos) << text;
  EXPECT_NE(text.find("peer_gb_s is fast"), std::string::npos) << text;
  EXPECT_NE(text.find("nodes[1].device.tflops16 is 1e9"), std::string::npos) << text;
  const auto has = [](const std::string& nodes, const char* part) {
    const std::string told = error_of("nodes: [" + nodes + "]");
    EXPECT_NE(told.find(part), std::string::npos) << told;
  };
  has("{count: 1.5, device: h100}", "count is 1.5, but must be an integer");
  has("{count: 2, count: 3, device: h100}", "nodes[0].count is given twice");
  has("{device: {tflops16: 500}}", "nodes[0].device.like must be a known device");
  has("{device: {like: h100x}}", "nodes[0].device.like: unknown device 'h100x'");
  has("{device: [h100]}", "nodes[0].device must be a known device");
  has("{devices: .nan, device: h100}", "devices is .nan");
  EXPECT_NE(error_of("nodes: []").find("requires a list of nodes"), std::string::npos);
  EXPECT_NE(error_of("").find("requires a list of nodes"), std::string::npos);
  EXPECT_NE(error_of("nodes: [").find("invalid YAML"), std::string::npos);
  EXPECT_NE(
      error_of("nodes: [{count: 1000000, devices: 4096, device: cpu}]")
          .find("more than the maximum of a million"),
      std::string::npos);
}

}  // namespace plan_test
}  // namespace lockstep::plan
