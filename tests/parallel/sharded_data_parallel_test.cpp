// Tests of ShardedDataParallel.
#include "parallel/sharded_data_parallel.h"

#include <mutex>
#include <utility>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/threads.h"
#include "numbers.h"

namespace lockstep {
namespace sharded_data_parallel_test {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", Unit<torch::nn::Linear>(5, 7));
    second = register_module("second", Unit<torch::nn::Linear>(7, 3));
    third = register_module("third", Unit<torch::nn::Linear>(3, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return third(second(first(x).tanh())); }
  Unit<torch::nn::Linear> first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Net);

torch::nn::Sequential make_sequential() {
  // One statement each: the evaluation order of arguments is unspecified.
  torch::nn::Sequential model;
  model->push_back(torch::nn::Linear(5, 7));
  model->push_back(torch::nn::Tanh());
  model->push_back(torch::nn::Linear(7, 3));
  model->push_back(torch::nn::Linear(3, 1));
  return model;
}

/// Seeds the random generator, which is global; ranks are threads.
template <class Make>
auto seeded(const Make& make) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  torch::manual_seed(3);
  return make();
}

torch::Tensor batch() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(8);
  return torch::empty({12, 5}).normal_(0, 1, generator);
}

torch::Tensor loss_of(const torch::Tensor& y) {
  return (y - 1).square().mean();
}

/// Returns the losses of unsharded training with torch's AdamW.
std::vector<double> plain_losses() {
  torch::nn::Sequential model = seeded(make_sequential);
  torch::optim::AdamW adamw(
      model->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0).eps(1e-6));
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    const torch::Tensor loss = loss_of(model->forward(batch()));
    losses.push_back(loss.item<double>());
    adamw.zero_grad();
    loss.backward();
    adamw.step();
  }
  return losses;
}

/// Checks every ZeRO stage with two micro-batches per rank. `forward(model, sharded, x)` runs the
/// model.
template <class Make, class Forward>
void expect_trains_as_one(const Make& make, const Forward& forward) {
  const auto expected = plain_losses();
  EXPECT_LT(expected.back(), expected.front());
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 3}) {
      comm::run_ranks(ranks, [&](comm::Communicator& group) {
        auto model = seeded(make);
        ShardedDataParallelOptions options;
        options.zero_stage = stage;
        options.optimizer.adam_epsilon = 1e-6;
        ShardedDataParallel sharded(model.ptr(), group, options);
        const auto parts = batch().chunk(2 * ranks);
        for (const double loss : expected) {
          {
            const torch::NoGradGuard no_grad;
            numbers::expect_loss(
                loss_of(forward(model, sharded, batch())).template item<double>(),
                loss,
                fmt::format("stage {} on {}", stage, ranks));
          }
          sharded.begin_step();
          const auto first = static_cast<size_t>(2 * group.rank());
          sharded.backward(
              loss_of(forward(model, sharded, parts[first])) / 2,
              ShardedDataParallel::MicroBatch::kMore);
          sharded.backward(loss_of(forward(model, sharded, parts[first + 1])) / 2);
          sharded.step(1e-2);
        }
      });
    }
  }
}

TEST(ShardedDataParallel, TrainsASequentialAsOneRankDoes) {
  expect_trains_as_one(
      make_sequential, [](auto&, ShardedDataParallel& sharded, const torch::Tensor& x) {
        return sharded.forward(x);
      });
}

TEST(ShardedDataParallel, TrainsAModuleOfUnitsAsOneRankDoes) {
  expect_trains_as_one(
      [] { return Net(); },
      [](Net& model, ShardedDataParallel&, const torch::Tensor& x) { return model->forward(x); });
}

TEST(ShardedDataParallel, DropsWhatItDoesNotUseAndGathersOnRequest) {
  comm::run_ranks(2, [](comm::Communicator& group) {
    Net model = seeded([] { return Net(); });
    const torch::Tensor before = model->second->module->weight.detach().clone();
    ShardedDataParallel sharded(model.ptr(), group);
    EXPECT_EQ(model->second->module->weight.storage().nbytes(), 0U);
    sharded.gather_parameters();
    EXPECT_TRUE(torch::equal(model->second->module->weight, before));
  });
}

TEST(ShardedDataParallel, NamesTheParametersThatAreInNoUnit) {
  struct Mixed : torch::nn::Module {
    Mixed() {
      held = register_module("held", Unit<torch::nn::Linear>(2, 2));
      loose = register_module("loose", torch::nn::Linear(2, 2));
    }
    Unit<torch::nn::Linear> held{nullptr};
    torch::nn::Linear loose{nullptr};
  };
  comm::Communicator alone = comm::Communicator::alone();
  try {
    const ShardedDataParallel sharded(std::make_shared<Mixed>(), alone);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(
        error.message().find("2 parameters are in no unit: loose.weight, loose.bias"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace sharded_data_parallel_test
}  // namespace lockstep
