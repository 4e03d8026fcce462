// Tests of the data parallel engine and the layout of flat units.
#include "parallel/data/data_parallel.h"

#include <mutex>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/threads.h"
#include "numbers.h"

namespace lockstep::parallel {
namespace data_parallel_test {

using comm::Communicator;

/// Three matrices of odd sizes and a bias; the loss is a sum over rows.
struct Toy {
  std::vector<Tensor> weights;

  explicit Toy(uint64_t seed) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (const auto& shape : std::vector<std::vector<int64_t>>{{7, 5}, {5, 3}, {3, 1}, {1}}) {
      weights.push_back(torch::empty(shape).normal_(0, 0.5, generator).requires_grad_());
    }
  }
  Tensor loss(const Tensor& rows) const {  // [n, 7]
    const Tensor hidden = rows.matmul(weights[0]).tanh().matmul(weights[1]).tanh();
    return (hidden.matmul(weights[2]) + weights[3]).square().sum();
  }
  std::vector<ParameterUnit> units() const {
    return {
        {"first", {{"w0", weights[0]}}},
        {"second", {{"w1", weights[1]}, {"bias", weights[3], {.weight_decay = 0}}}},
        {"third", {{"w2", weights[2]}}}};
  }
};

Tensor rows_of_data(int64_t rows) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(11);
  return torch::empty({rows, 7}).normal_(0, 1, generator);
}

/// Returns the gradient of `name` in the engine's buffers.
Tensor gradient_of(DataParallel& engine, const std::string& name) {
  for (const FlatUnit& flat : engine.flats()) {
    for (const FlatUnit::Entry& entry : flat.entries) {
      if (entry.name == name && flat.trainable) {
        return flat.gradient.narrow(0, entry.offset, entry.count).clone();
      }
    }
  }
  throw std::out_of_range(name);
}

std::vector<Tensor> plain_gradients(const Tensor& data) {
  const Toy toy(1);
  toy.loss(data).backward();
  std::vector<Tensor> gradients;
  for (const Tensor& weight : toy.weights) {
    gradients.push_back(weight.grad().flatten());
  }
  return gradients;
}

TEST(DataParallel, SumsToTheGradientsOfOneRankWhateverTheShares) {
  const Tensor data = rows_of_data(11);
  const auto expected = plain_gradients(data);
  for (const int ranks : {1, 2, 3}) {
    for (const int micro_batches : {1, 2}) {
      comm::run_ranks(ranks, [&](Communicator& group) {
        const Toy toy(1);
        DataParallel engine(group, toy.units(), {.bucket_megabytes = 1e-5});
        const auto parts = data.tensor_split(ranks * micro_batches);  // slices of unequal size
        for (int repeat = 0; repeat < 2; ++repeat) {                  // gradients start from zero
          engine.begin_step();
          for (int m = 0; m < micro_batches; ++m) {
            engine.begin_micro_batch(m + 1 == micro_batches);
            toy.loss(parts[static_cast<size_t>(m * ranks + group.rank())]).backward();
            engine.end_micro_batch();
          }
          engine.finish();
        }
        const std::vector<std::string> names{"w0", "w1", "w2", "bias"};
        for (size_t i = 0; i < names.size(); ++i) {
          numbers::expect_values(
              gradient_of(engine, names[i]),
              expected[i],
              fmt::format("{} on {} ranks", names[i], ranks));
        }
      });
    }
  }
}

TEST(DataParallel, ReducesWhileTheBackwardPassRunsAndOnlyInTheLastMicroBatch) {
  comm::run_ranks(2, [](Communicator& group) {
    const Toy toy(1);
    DataParallel engine(group, toy.units(), {.bucket_megabytes = 1e-5});
    ASSERT_EQ(engine.flats().size(), 3U);
    std::vector<std::string> events;
    group.set_observer([&](const comm::Call&) { events.emplace_back("reduce"); });
    const Tensor data = rows_of_data(4);
    engine.begin_step();
    engine.begin_micro_batch(false);
    toy.loss(data).backward();
    engine.end_micro_batch();
    EXPECT_TRUE(events.empty());
    engine.begin_micro_batch(true);
    toy.loss(data).backward();
    events.emplace_back("backward ended");
    engine.end_micro_batch();
    engine.finish();
    EXPECT_EQ(events, (std::vector<std::string>{"reduce", "reduce", "reduce", "backward ended"}));
    // The last reduction has no computation to overlap with.
    EXPECT_EQ(engine.overlapped_reductions(), 2);
  });
}

TEST(DataParallel, MakesParametersEqualAtTheStart) {
  comm::run_ranks(3, [](Communicator& group) {
    const Toy toy(static_cast<uint64_t>(group.rank()) + 1);
    const Toy first(1);
    const DataParallel engine(group, toy.units(), {});
    for (size_t i = 0; i < toy.weights.size(); ++i) {
      EXPECT_TRUE(torch::equal(toy.weights[i], first.weights[i]));
    }
  });
}

TEST(DataParallel, NamesUnusedParametersOrLooksForThem) {
  comm::run_ranks(2, [](Communicator& group) {
    for (const bool find : {false, true}) {
      const Toy toy(1);
      DataParallelOptions options;
      options.find_unused_parameters = find;
      DataParallel engine(group, toy.units(), options);
      const auto step = [&] {
        engine.begin_step();
        engine.begin_micro_batch(true);
        // Rank 1 does not use w2.
        (group.rank() == 0 ? toy.loss(rows_of_data(2))
                           : rows_of_data(2).matmul(toy.weights[0]).matmul(toy.weights[1]).sum() +
                                 toy.weights[3].sum())
            .backward();
        engine.end_micro_batch();
        engine.finish();
      };
      if (find) {
        step();
        EXPECT_GT(gradient_of(engine, "w2").abs().sum().item<float>(), 0);
      } else if (group.rank() == 1) {
        try {
          step();
          ADD_FAILURE() << "no error";
        } catch (const Error& error) {
          EXPECT_NE(error.message().find("rank 1: w2"), std::string::npos) << error.what();
          EXPECT_NE(error.remedy().find("ddp_find_unused_parameters"), std::string::npos);
        }
        engine.begin_step();  // takes part in rank 0's reductions, so that the test can continue
        engine.begin_micro_batch(true);
        toy.loss(rows_of_data(2)).backward();
        engine.end_micro_batch();
        engine.finish();
      } else {
        step();
      }
    }
  });
}

TEST(DataParallel, DoesNotDeadlockWhereGradientsComeInAnotherOrder) {
  comm::run_ranks(2, [](Communicator& group) {
    const Tensor a = torch::ones({3}).requires_grad_(), b = torch::ones({3}).requires_grad_();
    DataParallel engine(group, {{"a", {{"a", a}}}, {"b", {{"b", b}}}}, {.bucket_megabytes = 1e-6});
    engine.begin_step();
    engine.begin_micro_batch(true);
    (group.rank() == 0 ? (a * 2).exp().sum() + b.sum() : a.sum() + (b * 2).exp().sum()).backward();
    engine.end_micro_batch();
    engine.finish();
    EXPECT_NEAR(gradient_of(engine, "a")[0].item<double>(), 2 * std::exp(2.0) + 1, 1e-4);
    EXPECT_NEAR(gradient_of(engine, "b")[0].item<double>(), 2 * std::exp(2.0) + 1, 1e-4);
  });
}

TEST(DataParallel, LeavesFrozenParametersAlone) {
  Communicator alone = Communicator::alone();
  Toy toy(1);
  toy.weights[1].requires_grad_(false);
  DataParallel engine(alone, toy.units(), {});
  engine.begin_step();
  engine.begin_micro_batch(true);
  toy.loss(rows_of_data(3)).backward();
  engine.end_micro_batch();
  engine.finish();
  EXPECT_THROW(gradient_of(engine, "w1"), std::out_of_range);
}

TEST(DataParallel, NamesTheParameterWhoseGradientIsNotFinite) {
  Communicator alone = Communicator::alone();
  const Toy toy(1);
  DataParallel engine(alone, toy.units(), {});
  engine.begin_step();
  engine.begin_micro_batch(true);
  (toy.loss(rows_of_data(3)) + toy.weights[3].sum() * INFINITY).backward();
  engine.end_micro_batch();
  engine.finish();
  EXPECT_EQ(engine.first_non_finite(), "bias");
}

TEST(DataParallel, VoidsGraphsOfBeforeAnUpdate) {
  Communicator alone = Communicator::alone();
  const Toy toy(1);
  DataParallel engine(alone, toy.units(), {});
  engine.begin_step();
  engine.begin_micro_batch(true);
  const Tensor loss = toy.loss(rows_of_data(3));
  engine.parameters_changed();
  EXPECT_THROW(loss.backward(), c10::Error);
}

/// Creates flat units of the toy model's parameters.
FlatUnits lay_out(const Toy& toy, FlatOptions options) {
  options.agree = [](const Tensor&) {};
  return make_flat_units(toy.units(), options);
}

TEST(FlatUnits, HoldWholeParametersAndTheDecayedFirst) {
  const Toy toy(1);
  const auto all = lay_out(toy, {.bucket_bytes = 1 << 20});
  ASSERT_EQ(all.flats.size(), 1U);
  const FlatUnit& flat = all.flats[0];
  EXPECT_EQ(flat.size(), 35 + 15 + 3 + 1);
  EXPECT_EQ(flat.entries.back().name, "bias");
  EXPECT_EQ(flat.shard_layout().back().offset, 53);
  EXPECT_EQ(flat.shard_layout().back().rule.weight_decay, 0);
  EXPECT_EQ(flat.name, "first to third");
  EXPECT_TRUE(toy.weights[0].is_alias_of(flat.full));
  EXPECT_EQ(all.of_unit, (std::vector<std::vector<size_t>>{{0}, {0}, {0}}));
}

TEST(FlatUnits, AreCutIntoEqualAlignedShards) {
  const auto second = [](int64_t rank, int64_t alignment) {
    return lay_out(Toy(1), {.zero_stage = 3, .rank = rank, .ranks = 3, .alignment = alignment})
        .flats.at(1);
  };
  // w1 has 15 elements and the bias 1: shards of 6, 6 and 4 elements plus 2 of padding.
  EXPECT_EQ(second(1, 1).shard_layout()[0].begin, 6);
  EXPECT_EQ(second(2, 1).shard_layout()[0].count, 3);
  EXPECT_EQ(second(2, 1).shard_layout()[1].offset, 3);
  EXPECT_EQ(second(2, 1).shard.numel(), 6);
  // With alignment 8 the bias starts at 16 and shards have 8 elements.
  EXPECT_EQ(second(2, 8).shard_layout()[0].count, 0);
  EXPECT_EQ(second(2, 8).shard_layout()[1].offset, 0);
  EXPECT_EQ(second(1, 8).shard_layout()[0].begin, 8);
  EXPECT_EQ(second(1, 8).shard[7].item<float>(), 0);  // padding
}

TEST(FlatUnits, AnAllocationIsSeenByEveryView) {
  const Tensor flat = torch::ones({6}), view = flat.narrow(0, 2, 2);
  set_allocated(flat, false);
  EXPECT_EQ(view.storage().nbytes(), 0U);
  set_allocated(flat, true);
  flat.fill_(3);
  EXPECT_EQ(view[1].item<float>(), 3);
}

}  // namespace data_parallel_test
}  // namespace lockstep::parallel
