// Tests models with several kinds of blocks: encoder and decoder.
#include "plan/workload/blocks.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/description.h"
#include "model/operations.h"
#include "plan/memory/activations.h"
#include "plan/search.h"

namespace lockstep::plan {
namespace blocks_test {

using Counts = std::array<int64_t, kBlockKinds>;  // decoder only, encoder, end of encoder, decoder,
                                                  // with experts

Job t5_job(int64_t encoders, int64_t decoders, bool gated = false) {
  Job job;
  job.model = model::preset(gated ? "flan-t5-small" : "t5-small");
  job.model.encoder_layers = encoders;
  job.model.layers = encoders + decoders;
  job.model.sliding_windows.assign(static_cast<size_t>(encoders + decoders), 0);
  job.set_data_length(256);
  job.micro_batch = 4;
  job.global_batch = 16;
  return job;
}

TEST(Blocks, AreOfOneKindOrOfThree) {
  EXPECT_EQ(blocks_of(model::preset("gpt2")).of, (Counts{12, 0, 0, 0}));
  const model::ModelConfig t5 = t5_job(3, 2).model;
  EXPECT_EQ(blocks_of(t5).of, (Counts{0, 2, 1, 2}));
  EXPECT_EQ(blocks_of(t5, 1, 3).of, (Counts{0, 1, 1, 1}));
  EXPECT_EQ(blocks_of(t5, 3, 2).of, (Counts{0, 0, 0, 2}));
  EXPECT_EQ(blocks_of(t5_job(1, 1).model).of, (Counts{0, 0, 1, 1}));
}

TEST(Blocks, HaveTheParametersOfTheModel) {
  for (const char* name :
       {"t5-tiny",
        "t5-small",
        "t5-11b",
        "flan-t5-small",
        "flan-t5-xl",
        "gpt2",
        "mixtral-tiny",
        "qwen3-235b-a22b",
        "olmoe-1b-7b"}) {
    const model::ModelConfig config = model::preset(name);
    const ParameterCounts counts = count_parameters(config);
    EXPECT_EQ(counts.total(), static_cast<double>(model::parameter_count(config))) << name;
    std::vector<double> units(static_cast<size_t>(config.layers) + 2, 0);
    for (const model::ParameterSpec& parameter : model::parameters_of(config)) {
      units[static_cast<size_t>(parameter.unit)] += static_cast<double>(parameter.elements());
    }
    EXPECT_EQ(counts.embedding + counts.positions, units.front()) << name;
    EXPECT_EQ(counts.head, units.back()) << name;
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      EXPECT_EQ(counts.of(blocks_of(config, layer, 1)), units[static_cast<size_t>(layer) + 1])
          << name << " layer " << layer;
    }
  }
}

TEST(Blocks, StandOnTheirStages) {
  Job job = t5_job(3, 2);
  job.mesh.pipeline = 3;
  job.split = {2, 2, 1};
  const std::vector<BlockCounts> stages = stage_blocks(job);
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[0].of, (Counts{0, 2, 0, 0}));
  EXPECT_EQ(stages[1].of, (Counts{0, 0, 1, 1}));
  EXPECT_EQ(stages[2].of, (Counts{0, 0, 0, 1}));
  job.mesh.pipeline = 2;
  job.split = {1, 1, 1, 2};
  job.schedule = schedule::Kind::kInterleaved;
  job.virtual_stages = 2;
  const std::vector<BlockCounts> ranks = rank_blocks(job);
  EXPECT_EQ(ranks[0].of, (Counts{0, 1, 1, 0}));
  EXPECT_EQ(ranks[1].of, (Counts{0, 1, 0, 2}));
}

TEST(Blocks, OperationsAreTheModels) {
  for (const bool gated : {false, true}) {
    Job job = t5_job(3, 2, gated);
    job.sequence = job.source = 1;  // no causal mask
    const double of_token = model::operations_per_token(job.model, 1).training();
    EXPECT_NEAR(model_flops(job) / (of_token * job.step_tokens()), 1, 1e-12);
  }
  Job job = t5_job(3, 2);
  const double flops = model_flops(job);
  job.source *= 2;  // the encoder's, and the keys and values of the decoder's second attention
  EXPECT_GT(model_flops(job), 1.3 * flops);
  EXPECT_LT(model_flops(job), 2 * flops);
}

TEST(Blocks, TwiceAsManyTakeTwiceAsLong) {
  const Cluster one = uniform_cluster(find_device("h100-80gb"), 1);
  const auto seconds = [&](int64_t encoders, int64_t decoders) {
    const Job job = t5_job(encoders, decoders);
    return blocks_seconds(job, one, one.groups[0], blocks_of(job.model)).all();
  };
  EXPECT_NEAR(seconds(8, 8) / seconds(4, 4), 2, 0.02);
  // A decoder block has two attentions.
  EXPECT_GT(seconds(4, 8) - seconds(4, 4), 1.3 * (seconds(8, 4) - seconds(4, 4)));
  Job job = t5_job(4, 4);
  const double step = simulate(job, one).step_seconds;
  job.source = 1;
  EXPECT_LT(simulate(job, one).step_seconds, step);
}

TEST(Blocks, KeepTheScoresOfABiasButInARing) {
  Job job = t5_job(2, 2);
  job.software.dropout = false;
  job.precision = Precision::kFloat32;
  const double with = block_activations(job, BlockKind::kEncoder, Recompute::kNone);
  const double scores = 4.0 * 8 * 256 * 256 * 4;  // rows, heads, queries, keys, bytes
  job.mesh.context = 2;
  job.software.ring_in_memory = true;
  const double without = block_activations(job, BlockKind::kEncoder, Recompute::kNone);
  EXPECT_NEAR(with, 2 * without + scores, 1);
  job.mesh.context = 1;
  const double decoder = block_activations(job, BlockKind::kCrossDecoder, Recompute::kNone);
  EXPECT_GT(decoder, with + 4.0 * 8 * 257 * 256 * 4);
}

TEST(Blocks, HandOnTheOtherStream) {
  Job job = t5_job(4, 4);
  job.recompute = Recompute::kFull;
  job.mesh.pipeline = 4;
  job.split = {2, 2, 2, 2};
  const std::vector<StageMemory> stages = estimate_memory(job);
  const double token = 4 * 512 * 2;  // rows, width, bytes
  // Encoder blocks store their inputs, and the embedded target is forwarded.
  EXPECT_DOUBLE_EQ(stages[0].peak.activations, 4 * token * (2 * 256 + 257));
  // The end of the encoder stores the output of its last norm; no stream is forwarded there.
  EXPECT_DOUBLE_EQ(stages[1].peak.activations, 3 * token * 3 * 256);
  EXPECT_DOUBLE_EQ(stages[2].peak.activations, 2 * token * (2 * 257 + 256));
  const Cluster nodes =
      parse_cluster("nodes:\n  - {count: 4, devices: 1, device: a100-80gb}\n", "c");
  const double both = simulate(job, nodes).message;
  job.source = 1;
  EXPECT_LT(simulate(job, nodes).message, both);  // a message contains both streams
}

TEST(Blocks, AreSearchedAsCompletelyAsOneKind) {
  SearchRequest request;
  request.base = t5_job(6, 6);
  request.base.global_batch = 64;
  for (const char* cluster :
       {"nodes:\n  - {count: 1, devices: 8, device: rtx-4090}\n",
        "nodes:\n  - {count: 1, devices: 2, device: h100-80gb}\n  - {count: 1, devices: 2, "
        "device: v100-32gb, peer_gb_s: 40}\n"}) {
    request.cluster = parse_cluster(cluster, "c");
    request.best = 5;
    const SearchResult pruned = search(request);
    request.best = 100000;
    const SearchResult all = search(request);
    ASSERT_EQ(pruned.best.size(), 5U);
    EXPECT_GT(pruned.bounded, 0);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_DOUBLE_EQ(pruned.best[i].step.step_seconds, all.best[i].step.step_seconds);
    }
  }
}

TEST(Blocks, EveryCombinationIsFinite) {
  Job job = t5_job(4, 4);
  const Cluster cluster = uniform_cluster(find_device("a100-80gb"), 16);
  for (const int zero : {0, 1, 2, 3}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kActivation, Recompute::kFull}) {
      for (const int pipeline : {1, 4}) {
        for (const int context : {1, 2}) {
          for (const int64_t adapters : {0, 8}) {
            job.zero_stage = zero;
            job.recompute = recompute;
            job.adapter_rank = adapters;
            job.mesh = {.pipeline = pipeline, .data = 2, .context = context, .tensor = 1};
            for (const StageMemory& stage : estimate_memory(job)) {
              ASSERT_TRUE(std::isfinite(stage.peak.total()) && stage.peak.activations > 0)
                  << plan_line(job);
            }
            const Step step = simulate(job, cluster);
            ASSERT_TRUE(std::isfinite(step.step_seconds) && step.step_seconds > 0)
                << plan_line(job);
            ASSERT_LT(step.utilisation, 1) << plan_line(job);
          }
        }
      }
    }
  }
}

TEST(Blocks, AreWrittenWithTheLengthOfTheData) {
  const std::string yaml = plan_yaml(t5_job(2, 2));
  EXPECT_NE(yaml.find("sequence_length: 256\n"), std::string::npos) << yaml;
}

}  // namespace blocks_test
}  // namespace lockstep::plan
