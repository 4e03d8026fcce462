// Tests of the bytes sent along each axis, compared with the formulas of the papers.
#include <gtest/gtest.h>

#include "parallel/plans.h"
#include "parallel/products.h"

namespace lockstep::parallel {
namespace bytes_test {

/// Sizes that are divisible by all tested numbers of ranks, so that the formulas are exact.
const char* const kEvenGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 96, "n_embd": 24, "n_layer": 2, "n_head": 6,
        "n_positions": 32, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1})";
constexpr int64_t kLayers = 2, kWidth = 24, kLength = 24, kFloatBytes = 4;
constexpr int64_t kActivation = kPlanRows * kLength * kWidth * kFloatBytes;  // [B, T, C]

/// Bytes that rank 0 sends in forward_backward, by operation. Calls of up to `small` bytes are
/// counted separately.
struct Sent {
  std::map<std::string, int64_t> large, small;
};

Sent sent_under(const PlanCase& plan, int64_t small) {
  const model::ModelConfig config = model::parse_model_config(kEvenGpt2, "a test");
  Sent sent;
  comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
    ParallelGroups axes(world, plan.mesh);  // with one axis, its communicator is the world's
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    const auto model = parallelize(spec, plan.plan, axes);
    if (world.rank() == 0) {
      world.set_observer([&](const comm::Call& call) {
        (call.bytes <= small ? sent.small : sent.large)[std::string(call.operation)] +=
            call.bytes_sent;
      });
    }
    const std::vector<nn::ForwardInputs> inputs{plan_inputs(config, 0, {0, kPlanRows}, kLength)};
    (void)model->forward_backward(inputs, 100);
    world.set_observer({});
  });
  return sent;
}

TEST(Bytes, TensorParallelismReducesTwoActivationsALayerEachWay) {
  // Shoeybi et al., 2019, section 3 and figure 4, plus one reduction each for embedding and head.
  for (const int n : {2, 3}) {
    const Sent sent = sent_under({{.tensor = n}}, kActivation / 2);
    const int64_t reductions = 4 * kLayers + 2;
    EXPECT_EQ(sent.large.at("all_reduce"), reductions * 2 * kActivation * (n - 1) / n);
    EXPECT_EQ(sent.large.size(), 1U);
    // The loss needs three numbers per target token.
    EXPECT_LE(sent.small.at("all_gather"), 3 * kPlanRows * kLength * kFloatBytes * n * (n - 1) / n);
  }
}

TEST(Bytes, SequenceParallelismSendsAsMuchAsTensorParallelism) {
  // Korthikanti et al., 2022, section 4.2.2: an all-reduce becomes a reduce-scatter and an
  // all-gather.
  for (const int n : {2, 3}) {
    const Sent sent = sent_under(
        {{.tensor = n}, 1, {.sequence_sharding = SequenceSharding::kShards}}, kActivation / 2);
    const int64_t each = (4 * kLayers + 2) * kActivation * (n - 1) / n;
    EXPECT_EQ(sent.large.at("all_gather"), each);
    EXPECT_EQ(sent.large.at("reduce_scatter"), each);
    EXPECT_EQ(sent.large.size(), 2U);
  }
}

TEST(Bytes, ARingPassesKeysAndValuesAndTheirGradients) {
  // Liu et al., 2023, section 3: n - 1 times the rank's keys and values, and again in the backward
  // pass, plus n - 1 times their gradients, which start at the neighbor.
  for (const int n : {2, 3}) {
    const Sent sent = sent_under({{.context = n}}, 0);
    const int64_t pair = 2 * kActivation / n;
    EXPECT_EQ(sent.large.at("exchange"), kLayers * pair * 3 * (n - 1));
  }
}

TEST(Bytes, UlyssesTradesFourActivationsALayerEachWay) {
  // Jacobs et al., 2023, section 3.2: queries, keys, values and outputs.
  for (const int n : {2, 3}) {
    const Sent sent =
        sent_under({{.context = n}, 1, {.context_attention = ContextAttention::kUlysses}}, 0);
    const int64_t part = kActivation / n;
    EXPECT_EQ(sent.large.at("all_to_all"), kLayers * 8 * part * (n - 1) / n);
  }
}

/// Bytes that one of two ranks sends for gathers in ZeRO stage 3, for a frozen bfloat16 model with
/// adapters.
int64_t gathered_with(bool is_packed, int64_t threshold) {
  const model::ModelConfig config = model::parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 32, "n_embd": 128, "n_layer": 2, "n_head": 4,
          "n_positions": 16})",
      "a test");
  int64_t bytes = 0;
  comm::run_ranks(2, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.data = 2});
    const auto adapt = [](nn::LanguageModel& model) {
      testing::adapt_low_rank(model, testing::Base::kFrozen);
    };
    ModelSpec spec{config, at::kBFloat16, at::kCPU, testing::fill_adapted(config, adapt)};
    spec.adapt = adapt;
    if (is_packed) {
      testing::pack(spec, {ops::PackedKind::kNf4, 64, true}, adapt);
    }
    const auto model =
        parallelize(spec, {.zero_stage = 3, .persistence_threshold = threshold}, axes);
    if (world.rank() == 0) {
      world.set_observer([&](const comm::Call& call) {
        bytes += call.operation == "all_gather" ? call.bytes_sent : 0;
      });
    }
    const std::vector<nn::ForwardInputs> inputs{plan_inputs(config, 0, {0, kPlanRows}, 16)};
    (void)model->forward_backward(inputs, 50);
    world.set_observer({});
  });
  return bytes;
}

TEST(Bytes, PackedWeightsAreGatheredAsTheyAre) {
  // Packed weights use 4.127 of 16 bits, plus the tables of codes and scales of each matrix. The
  // threshold counts weights, not bytes: a matrix of 128 by 128 is gathered with either threshold,
  // although it has fewer than 12,000 bytes.
  for (const int64_t threshold : {5000, 12000}) {
    const auto share = static_cast<double>(gathered_with(true, threshold)) /
                       static_cast<double>(gathered_with(false, threshold));
    EXPECT_GT(share, 0.25) << threshold;
    EXPECT_LT(share, 0.30) << threshold;
  }
}

}  // namespace bytes_test
}  // namespace lockstep::parallel
