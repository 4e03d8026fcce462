// Tests of hybrid sharding (shards within groups of ranks, replicas across them) and of gradients
// reduced in another type.
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/training.h"

namespace lockstep::parallel {
namespace zero_hybrid_test {

using comm::Communicator;
using namespace testing;

TrainingRun hybrid(int stage, int ranks, int shard_ranks, int64_t micro_batches = 1) {
  TrainingRun run{tied_config(), small_plan(stage, micro_batches), ranks};
  run.plan.shard_ranks = shard_ranks;
  return run;
}

TEST(Hybrid, TrainsAsOneRankDoes) {
  const Outcome one = train({.plan = small_plan()});
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& [ranks, shard_ranks] :
         std::vector<std::pair<int, int>>{{4, 2}, {4, 1}, {3, 1}, {4, 4}}) {
      for (const int64_t micro_batches : {1, 2}) {
        const TrainingRun run = hybrid(stage, ranks, shard_ranks, micro_batches);
        expect_equal(
            train(run), one, 1e-5, fmt::format("{}, shards over {}", run.name(), shard_ranks));
      }
    }
  }
}

TEST(Hybrid, EveryOptimizerAndAStateGoOnUnderIt) {
  for (const char* optim : {"adamw", "adafactor"}) {
    TrainingRun whole{tied_config(), small_plan(), 1, at::kFloat, 8};
    whole.plan.optimizer.optim = optim;
    const double tolerance = std::string_view(optim) == "adamw" ? 1e-5 : 2e-3;
    const Outcome one = train(whole);
    TrainingRun first = hybrid(3, 4, 2), second = hybrid(2, 4, 1);
    first.steps = second.steps = second.first_step = 4;
    first.plan.optimizer.optim = second.plan.optimizer.optim = optim;
    const Outcome half = train(first);
    for (const auto& [name, tensor] : half.state) {
      EXPECT_FALSE(tensor.isnan().any().item<bool>()) << name << " is not all there";
    }
    const Outcome rest = train(second, half.state);
    for (size_t step = 0; step < 4; ++step) {
      EXPECT_NEAR(rest.losses[step], one.losses[step + 4], tolerance * one.losses[step]) << optim;
    }
  }
}

TEST(Hybrid, ARankHoldsTheShareOfItsGroupAndGathersWithinIt) {
  const TrainingRun run = hybrid(3, 4, 2);
  comm::run_ranks(4, [&](Communicator& group) {
    const auto model = make_parallel(run, group);
    int64_t gathers_over_all = 0;
    group.set_observer([&](const comm::Call& call) {
      gathers_over_all += call.operation == "all_gather" ? 1 : 0;
    });
    run_step(*model, run, group, 0);
    EXPECT_EQ(gathers_over_all, 0);
    for (const FlatUnit& flat : model->data_parallel().flats()) {
      EXPECT_EQ(flat.shard.numel(), flat.size() / 2);
    }
  });
}

TEST(Hybrid, ReplicasBeginWithRankZerosValues) {
  comm::run_ranks(4, [](Communicator& group) {
    auto model = nn::make_model(tied_config(), at::kFloat, at::kCPU);
    nn::initialize(*model, 100 + static_cast<uint64_t>(group.rank()));
    Plan plan = small_plan(3);
    plan.shard_ranks = 2;
    ParallelGroups axes(group, {.data = 4});
    const auto sharded = parallelize(std::move(model), plan, axes);
    const auto reference = nn::make_model(tied_config(), at::kFloat, at::kCPU);
    nn::initialize(*reference, 100);
    std::map<std::string, Tensor> expected;
    reference->visit_parameters(
        [&](const std::string& name, Tensor& tensor) { expected[name] = tensor.detach(); });
    sharded->visit_state([&](const StateSlice& slice) {
      if (slice.file_group == "model") {
        EXPECT_TRUE(at::equal(
            slice.data,
            expected.at(slice.name).view({-1}).narrow(0, slice.begin, slice.data.numel())))
            << slice.name;
      }
    });
  });
}

TEST(Hybrid, RefusesANumberThatDoesNotDivideTheRanks) {
  const TrainingRun run = hybrid(3, 3, 2);
  try {
    train(run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("does not divide the 3 ranks"), std::string::npos)
        << error.what();
  }
}

TEST(ReduceType, GradientsMayTravelInAnotherTypeThanTheyAreAddedUpIn) {
  const Outcome one = train({.plan = small_plan()});
  for (const int stage : {0, 1, 2, 3}) {
    for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
             {at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}, {at::kHalf, 3e-3}}) {
      TrainingRun run{tied_config(), small_plan(stage, 2), 2};
      run.plan.reduce_type = type;
      expect_equal(train(run), one, tolerance, fmt::format("{} by {}", run.name(), toString(type)));
    }
  }
}

TEST(ReduceType, HalfTheBytesTravelInHalfTheType) {
  const auto sent = [](std::optional<at::ScalarType> type) {
    TrainingRun run{.plan = small_plan(2), .ranks = 2};
    run.plan.reduce_type = type;
    int64_t bytes = 0;
    comm::run_ranks(2, [&](Communicator& group) {
      const auto model = make_parallel(run, group);
      group.set_observer([&](const comm::Call& call) {
        if (group.rank() == 0 && call.operation == "reduce_scatter") {
          bytes += call.bytes_sent;
        }
      });
      run_step(*model, run, group, 0);
      group.set_observer({});
    });
    return bytes;
  };
  EXPECT_EQ(2 * sent(at::kBFloat16), sent(std::nullopt));
}

}  // namespace zero_hybrid_test
}  // namespace lockstep::parallel
