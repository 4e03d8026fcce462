// Tests of context parallelism.
#include "parallel/context/context_parallel.h"

#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "numbers.h"
#include "parallel/context/ring_attention.h"
#include "parallel/plans.h"

namespace lockstep::parallel {
namespace context_parallel_test {

constexpr auto kShards = SequenceSharding::kShards;
constexpr auto kUlysses = ContextAttention::kUlysses;

TEST(SequenceParallel, LearnsWhatOneRankLearns) {
  const Trained one = train_under({}, kOddQwen2);
  for (const PlanCase& plan :
       {PlanCase{{.tensor = 2}, 1, {.sequence_sharding = kShards}},
        PlanCase{{.data = 2, .tensor = 3}, 2, {.sequence_sharding = kShards}}}) {
    expect_equal(train_under(plan, kOddQwen2), one, plan_name(plan));
  }
}

TEST(RingAttention, LearnsWhatOneRankLearns) {
  const Trained one = train_under({}, kOddQwen2);
  for (const PlanCase& plan :
       {PlanCase{{.context = 2}},
        PlanCase{{.context = 3}, 2},
        PlanCase{{.context = 2, .tensor = 3}, 1, {.sequence_sharding = kShards}}}) {
    expect_equal(train_under(plan, kOddQwen2), one, plan_name(plan));
  }
}

TEST(RingAttention, OnARankThatIsAloneIsPlainAttention) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    constexpr int64_t kLength = 7;
    const auto draw = [&](double shift) {
      return at::sin(at::arange(2 * 3 * kLength * 4).to(at::kFloat) + shift)
          .view({2, 3, kLength, 4})
          .requires_grad_();
    };
    const Tensor query = draw(0), key = draw(1), value = draw(2);
    const model::ModelConfig config = model::parse_model_config(kOddLlama, "a test");
    nn::ForwardInputs inputs;
    inputs.ids = at::zeros({2, kLength}, at::kLong);
    inputs.whole_length = kLength;
    const nn::ForwardContext context(config, inputs);
    nn::Attention plain;
    plain.scale = 0.5;
    const RingAttention ring(plain, {.context_rank = 0, .context_ranks = 1}, world);
    const Tensor whole = plain.forward(query, key, value, context);
    const Tensor mine = ring.forward(query, key, value, context);
    numbers::expect_values(mine, whole, "attention");
    whole.sin().sum().backward();
    const Tensor expected = key.grad().clone();
    key.mutable_grad().zero_();
    mine.sin().sum().backward();
    numbers::expect_values(key.grad(), expected, "the gradient of the keys");
  });
}

TEST(UlyssesAttention, LearnsWhatOneRankLearns) {
  const PlanCase plan{{.context = 5}, 1, {.context_attention = kUlysses}};
  expect_equal(train_under(plan, kOddQwen2), train_under({}, kOddQwen2), plan_name(plan));
}

TEST(UlyssesAttention, GivesAKeyHeadToEveryRankThatNeedsIt) {
  std::string model = kOddLlama;
  model.replace(model.find("num_attention_heads\": 6"), 23, "num_attention_heads\": 4");
  const PlanCase plan{{.context = 4}, 1, {.context_attention = kUlysses}};
  expect_equal(train_under(plan, model), train_under({}, model), plan_name(plan));
}

TEST(UlyssesAttention, RefusesHeadsThatDoNotDivide) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  comm::run_ranks(3, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.context = 3});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    try {
      (void)make_sharded_model(spec, {.context_attention = kUlysses}, axes);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.remedy().find("parallel.context_attention=ring"), std::string::npos)
          << error.what();
    }
  });
}

TEST(SequencePart, GivesEveryPositionToOneRankAndEvenWorkToAll) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const int tensor_ranks : {1, 2, 3}) {
      const int64_t multiple =
          SequencePart{.context_ranks = ranks, .tensor_ranks = tensor_ranks}.multiple();
      const int64_t length = 2 * multiple;
      std::multiset<int64_t> seen;
      std::set<int64_t> work;
      for (int rank = 0; rank < ranks; ++rank) {
        int64_t pairs = 0;
        for (int tensor = 0; tensor < tensor_ranks; ++tensor) {
          const SequencePart part{rank, ranks, tensor, tensor_ranks};
          const int64_t mine = length / ranks / tensor_ranks;
          int64_t next = 0;
          for (const PositionRun& run : part.runs(mine)) {
            EXPECT_EQ(run.local, next);
            next += run.count;
            for (int64_t i = 0; i < run.count; ++i) {
              seen.insert(run.whole + i);
              pairs += run.whole + i + 1;
            }
          }
          EXPECT_EQ(next, mine);
        }
        work.insert(pairs);
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(length));
      EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size());
      EXPECT_EQ(work.size(), 1U) << ranks << " ranks have unequal work";
    }
  }
}

TEST(ShardInputs, PadsWithoutTargetsAndKeepsPositions) {
  nn::ForwardInputs inputs;
  inputs.ids = at::arange(10, 15).view({1, 5});
  inputs.targets = nn::next_tokens(inputs.ids);
  const SequencePart part{.context_rank = 0, .context_ranks = 2};
  const nn::ForwardInputs mine = shard_inputs(inputs, part);  // of 8 chunks: chunks 0, 1, 6 and 7
  const auto list = [](const Tensor& x) {
    return std::vector<int64_t>(x.data_ptr<int64_t>(), x.data_ptr<int64_t>() + x.numel());
  };
  EXPECT_EQ(list(mine.ids.contiguous()), (std::vector<int64_t>{10, 11, 0, 0}));
  EXPECT_EQ(list(mine.targets.tokens.contiguous()), (std::vector<int64_t>{11, 12, -100, -100}));
  EXPECT_EQ(list(mine.positions.contiguous()), (std::vector<int64_t>{0, 1, 4, 4}));
  EXPECT_EQ(mine.whole_length, 5);
}

TEST(ContextParallel, EvaluatesLikeOneRank) {
  const model::ModelConfig config = model::parse_model_config(kOddLlama, "a test");
  nn::ForwardInputs inputs = plan_inputs(config, 0, {0, kPlanRows}, kPlanLength);
  inputs.training = false;
  std::map<int, Tensor> statistics;
  for (const int ranks : {1, 3}) {
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      ParallelGroups axes(world, {.context = ranks});
      const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
      const ShardedModel sharded = make_sharded_model(spec, {}, axes);
      const Tensor sums = sums_of(*sharded.model, shard_inputs(inputs, sequence_part({}, axes)));
      axes.data_context().all_reduce(sums).wait();
      if (world.rank() == 0) {
        statistics[ranks] = sums;
      }
    });
  }
  numbers::expect_values(statistics[3], statistics[1], "statistics");
}

}  // namespace context_parallel_test
}  // namespace lockstep::parallel
