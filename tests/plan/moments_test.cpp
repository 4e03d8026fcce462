// Compares the predicted peak memory of a CPU rank with the trainer's allocator for the same job,
// in MiB.
#include "plan/memory/moments.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace moments_test {

constexpr double kMiB = 1 << 20;

struct Shape {
  int64_t layers, width, vocabulary, length, batch;
};

model::ModelConfig gpt2_of(const Shape& shape) {
  model::ModelConfig config = model::preset("gpt2");
  config.layers = shape.layers;
  config.sliding_windows.assign(static_cast<size_t>(shape.layers), 0);
  config.hidden_size = shape.width;
  config.head_dim = 64;
  config.heads = config.kv_heads = shape.width / 64;
  config.intermediate_size = 4 * shape.width;
  config.vocab_size = shape.vocabulary;
  config.max_positions = shape.length;
  config.tie_word_embeddings = true;
  return config;
}

model::ModelConfig llama_of(const Shape& shape, int64_t kv_heads, int64_t inner) {
  model::ModelConfig config = gpt2_of(shape);
  config.family = model::Family::kLlama;
  config.gated_mlp = true;
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = false;
  config.heads = 10;
  config.head_dim = shape.width / 10;
  config.kv_heads = kv_heads;
  config.intermediate_size = inner;
  config.tie_word_embeddings = false;
  return config;
}

/// The trainer on processors with AMX.
Job job_of(const model::ModelConfig& config, const Shape& shape, Precision precision) {
  Job job;
  job.model = config;
  job.sequence = shape.length;
  job.micro_batch = shape.batch;
  job.precision = precision;
  job.mesh.data = 2;
  const bool is_float = precision == Precision::kFloat32;
  Software& software = job.software;
  software.weight_bytes = software.gradient_bytes = software.reduce_bytes = is_float ? 4 : 2;
  software.optimizer_bytes = is_float ? 8 : 12;
  software.sum_bytes = 4;
  software.logit_bytes = is_float ? 4 : 2;
  software.logit_limit = 96 * kMiB;
  software.keeps_gated = false;
  software.mask_bytes = software.context_bytes = software.fragmentation = 0;
  software.balances_stages = software.keeps_exchanged = software.device_is_host = true;
  software.fused_head = true;
  software.lays_out = !is_float;
  return job;
}

Job gpt2(const Shape& shape, Precision precision = Precision::kMixed16) {
  return job_of(gpt2_of(shape), shape, precision);
}

/// `counted` is the memory of tensors, without fragmentation.
void expect_fullest(Job job, int64_t micro_batches, double counted) {
  job.global_batch = job.micro_batch * job.mesh.data * micro_batches;
  const Memory peak = largest(estimate_memory(job)).peak;
  const double predicted = (peak.total() - peak.fragmentation) / kMiB;
  EXPECT_NEAR(predicted, counted, 0.02 * counted);
}

constexpr Shape kWide{4, 512, 8192, 256, 4};
constexpr Shape kDeep{12, 256, 4096, 256, 8};

TEST(Moments, ManyWordsAreFullestAtTheHead) {
  expect_fullest(gpt2({4, 512, 8192, 256, 8}), 1, 436.9);
  expect_fullest(gpt2({4, 512, 8192, 256, 4}, Precision::kFloat32), 1, 435.3);
  expect_fullest(gpt2({2, 256, 50257, 256, 8}), 1, 379.8);  // three chunks of rows
  expect_fullest(gpt2({2, 256, 50257, 256, 4}, Precision::kFloat32), 1, 340.0);
}

TEST(Moments, WithRecomputationTheBackwardPassIsFullest) {
  Job job = gpt2({12, 256, 4096, 256, 16});
  job.recompute = Recompute::kFull;
  job.recompute_others = Recompute::kNone;
  expect_fullest(job, 1, 236.7);
  Job half = gpt2({9, 192, 2503, 384, 16});
  half.recompute = Recompute::kFull;
  half.recompute_others = Recompute::kNone;
  half.recompute_share = 5.0 / 9;
  expect_fullest(half, 1, 281.8);
  Job selective = gpt2({9, 192, 2503, 384, 7});
  selective.recompute = Recompute::kActivation;
  expect_fullest(selective, 1, 197.5);
}

TEST(Moments, StagesShareStatesAndOpenBuffers) {
  Job job = gpt2(kWide);
  job.zero_stage = 1;
  expect_fullest(job, 1, 251.4);
  job.zero_stage = 2;
  expect_fullest(job, 1, 253.0);
  job.zero_stage = 3;
  expect_fullest(job, 1, 235.4);
}

TEST(Moments, WhatIsOnItsWayToFilesIsOfTheUpdate) {
  Job job = gpt2(kWide);
  job.zero_stage = 2;
  job.offload = Offload::kOptimizer;
  job.offload_to = OffloadTo::kNvme;
  expect_fullest(job, 1, 156.1);
  job.zero_stage = 3;
  job.offload = Offload::kAll;
  expect_fullest(job, 1, 122.3);
  // With one short sequence this is the peak.
  job.micro_batch = 1;
  job.sequence = 32;
  job.global_batch = 2;
  EXPECT_EQ(estimate_memory(job)[0].peak.activations, 0);
}

TEST(Moments, RanksThatShareLayersAndSequencesKeepWhatTheyExchanged) {
  Job tensor = gpt2({4, 512, 8192, 256, 8});
  tensor.mesh = {.tensor = 2};
  expect_fullest(tensor, 1, 243.9);
  tensor.sequence_parallel = true;
  expect_fullest(tensor, 1, 234.9);
  Job context = gpt2({4, 512, 8192, 256, 8});
  context.mesh = {.context = 2};
  expect_fullest(context, 1, 348.6);
  constexpr Shape kGrouped{5, 320, 10007, 512, 6};
  Job ulysses = job_of(llama_of(kGrouped, 2, 864), kGrouped, Precision::kMixed16);
  ulysses.mesh = {.context = 2};
  ulysses.context_attention = ContextAttention::kUlysses;
  expect_fullest(ulysses, 1, 289.5);
}

TEST(Moments, GroupedHeadsAndSumsOfMicroBatches) {
  constexpr Shape kGrouped{5, 320, 10007, 512, 3};
  expect_fullest(job_of(llama_of(kGrouped, 2, 864), kGrouped, Precision::kFloat32), 1, 390.9);
  constexpr Shape kFour{5, 320, 10007, 512, 4};
  expect_fullest(job_of(llama_of(kFour, 2, 864), kFour, Precision::kMixed16), 3, 350.5);
}

TEST(Moments, PipelinesHoldMicroBatchesAndMessages) {
  Job job = gpt2(kDeep);
  job.mesh = {.pipeline = 2};
  expect_fullest(job, 4, 351.1);
  job.schedule = schedule::Kind::kGpipe;
  expect_fullest(job, 4, 579.1);
  job.schedule = schedule::Kind::kInterleaved;
  job.virtual_stages = 2;
  expect_fullest(job, 4, 405.1);
}

TEST(Moments, AnUpdateThatCopiesItsUnitsCounts) {
  Job job = gpt2({2, 1024, 6007, 128, 3});
  job.model.tie_word_embeddings = false;
  job.software.optimizer_bytes = 8;  // moments without master copies
  job.software.update_copy = 4;
  expect_fullest(job, 1, 478.7);
}

TEST(Moments, WithRecomputationAPlaceOfTheWidestTensorIsLost) {
  Job job = gpt2(kDeep);
  EXPECT_EQ(largest(estimate_memory(job)).peak.fragmentation, 0);
  job.recompute = Recompute::kFull;
  EXPECT_EQ(largest(estimate_memory(job)).peak.fragmentation, 8.0 * 256 * 4 * 256 * 2);
}

/// LoRA stores the inputs of linear layers, which are counted. DoRA also stores their outputs:
/// queries, keys and values, the attention output and both sides of the MLP.
TEST(Moments, DecomposedAdaptersKeepWhatTheLinearsGive) {
  Job job = gpt2(kDeep);
  const double all = largest(estimate_memory(job)).peak.activations;
  job.adapter_rank = 8;
  EXPECT_EQ(largest(estimate_memory(job)).peak.activations, all);
  job.adapters_decompose = true;
  const double outputs = 256.0 * (3 + 1 + 4 + 1), tokens = 8.0 * 256;
  EXPECT_NEAR(largest(estimate_memory(job)).peak.activations, all + 12 * tokens * outputs * 2, 1);
}

TEST(Moments, AdaptersHaveNoGradientOfTheHead) {
  Job job = gpt2({2, 256, 50257, 256, 8});
  job.zero_stage = 2;
  const double all = largest(estimate_memory(job)).peak.logits;
  job.adapter_rank = 8;
  const double table = 50257.0 * 256;  // 16 bits; accumulated in float32 with several chunks
  EXPECT_NEAR(largest(estimate_memory(job)).peak.logits, all - table * (2 + 4), 1);
}

}  // namespace moments_test
}  // namespace lockstep::plan
