// Tests of DistributedDataParallel and checkpoints with a convolutional network of odd sizes.
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "checkpoint/folders.h"
#include "comm/threads.h"
#include "library/distributed_data_parallel.h"
#include "library/module_checkpoint.h"
#include "numbers.h"
#include "temporary_folder.h"

namespace lockstep {
namespace module_test {

using ::testing::HasSubstr;

/// Network with a frozen layer, a shared layer, a norm with buffers, and an optional layer.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t seed) {
    static std::mutex mutex;  // the random generator is global, and ranks are threads
    const std::scoped_lock lock(mutex);
    torch::manual_seed(static_cast<uint64_t>(seed));
    first = register_module("first", torch::nn::Conv2d(1, 5, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(5));
    shared = register_module("shared", torch::nn::Linear(5, 5));
    register_module("shared_again", shared.ptr());
    last = register_module("last", torch::nn::Linear(5, 3));
    unused = register_module("unused", torch::nn::Linear(3, 3));
    norm->weight.set_requires_grad(false);
    norm->eval();  // in training mode, statistics would depend on the rank's samples
  }
  torch::Tensor forward(const torch::Tensor& images) {
    const auto x = torch::gelu(norm(first(images))).mean({2, 3});  // [B, 5]
    const auto y = last(shared(shared(x).tanh()));                 // [B, 3]
    return uses_all ? unused(y) : y;
  }
  bool uses_all = true;
  torch::nn::Conv2d first{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear shared{nullptr}, last{nullptr}, unused{nullptr};
};
TORCH_MODULE(Net);

constexpr int64_t kImages = 12;

/// Rows [begin, end) of a step's images and targets.
std::pair<torch::Tensor, torch::Tensor> batch(int64_t step, int64_t begin, int64_t end) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(50 + step));
  const auto images = torch::empty({kImages, 1, 7, 6}).normal_(0, 1, generator);
  const auto targets = torch::empty({kImages}, torch::kLong).random_(0, 3, generator);
  return {images.slice(0, begin, end), targets.slice(0, begin, end)};
}

torch::Tensor loss_of(Net& net, int64_t step, int64_t begin, int64_t end) {
  const auto [images, targets] = batch(step, begin, end);
  return torch::cross_entropy_loss(net->forward(images), targets);
}

torch::optim::AdamW adamw(Net& net) {
  return torch::optim::AdamW(
      net->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1).eps(1e-5));
}

void step_alone(Net& net, torch::optim::Optimizer& optimizer, int64_t step) {
  optimizer.zero_grad();
  loss_of(net, step, 0, kImages).backward();
  optimizer.step();
}

/// Runs one step on this rank's share of the batch, in micro-batches.
void step_together(
    Net& net,
    DistributedDataParallel& parallel,
    torch::optim::Optimizer& optimizer,
    comm::Communicator& ranks,
    int64_t step,
    int64_t micro_batches) {
  const int64_t cells = ranks.size() * micro_batches;
  for (int64_t i = 0; i < micro_batches; ++i) {
    const int64_t cell = ranks.rank() * micro_batches + i;
    const auto loss = loss_of(net, step, kImages * cell / cells, kImages * (cell + 1) / cells);
    parallel.backward(
        loss / micro_batches,
        i + 1 == micro_batches ? DistributedDataParallel::MicroBatch::kLast
                               : DistributedDataParallel::MicroBatch::kMore);
  }
  optimizer.step();
}

void expect_equal_parameters(const Net& net, const Net& expected, double tolerance) {
  const auto mine = net->named_parameters(), theirs = expected->named_parameters();
  for (const auto& parameter : theirs) {
    EXPECT_LE((mine[parameter.key()] - parameter.value()).abs().max().item<double>(), tolerance)
        << parameter.key();
  }
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(DistributedDataParallel, TrainsAsOneRankDoes) {
  Net expected(1);
  auto optimizer = adamw(expected);
  for (int64_t step = 0; step < 4; ++step) {
    step_alone(expected, optimizer, step);
  }
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t micro_batches : {1, 2}) {
      comm::run_ranks(ranks, [&](comm::Communicator& group) {
        Net net(group.rank() + 1);  // all ranks start from rank 0's weights
        auto own = adamw(net);      // created before wrapping: parameters keep their identity
        DistributedDataParallelOptions options;
        options.bucket_megabytes = 1e-4;
        DistributedDataParallel parallel(net.ptr(), group, options);
        for (int64_t step = 0; step < 4; ++step) {
          step_together(net, parallel, own, group, step, micro_batches);
        }
        expect_equal_parameters(net, expected, 2e-5);
        EXPECT_GT(parallel.overlapped_reductions(), 0);
      });
    }
  }
}

TEST(DistributedDataParallel, AddsUpOnRequest) {
  comm::run_ranks(2, [&](comm::Communicator& group) {
    Net net(1), alone(1);
    DistributedDataParallelOptions options;
    options.gradient = DistributedDataParallelOptions::Gradient::kSumOfRanks;
    DistributedDataParallel parallel(net.ptr(), group, options);
    parallel.backward(loss_of(net, 0, 6 * group.rank(), 6 * group.rank() + 6) * 0.5);
    loss_of(alone, 0, 0, kImages).backward();
    numbers::expect_values(
        net->last->weight.grad(), alone->last->weight.grad(), "the sum of two ranks");
    EXPECT_FALSE(net->norm->weight.grad().defined());
  });
}

TEST(DistributedDataParallel, NamesUnusedParametersOrMakesThemZero) {
  comm::run_ranks(2, [&](comm::Communicator& group) {
    Net net(1);
    net->uses_all = group.rank() == 0;
    DistributedDataParallelOptions options;
    options.find_unused_parameters = true;
    DistributedDataParallel parallel(net.ptr(), group, options);
    parallel.backward(loss_of(net, 0, 0, 4));
    EXPECT_GT(net->unused->weight.grad().abs().sum().item<double>(), 0);  // from rank 0's samples
  });
  comm::Communicator alone = comm::Communicator::alone();
  Net net(1);
  net->uses_all = false;
  DistributedDataParallel parallel(net.ptr(), alone);
  EXPECT_THAT(
      error_of([&] { parallel.backward(loss_of(net, 0, 0, 4)); }), HasSubstr("unused.weight"));
}

TEST(DistributedDataParallel, TellsModulesThatDiffer) {
  const std::string error = error_of([] {
    comm::run_ranks(2, [](comm::Communicator& group) {
      torch::nn::Linear net(3, 4 + group.rank());
      DistributedDataParallel parallel(net.ptr(), group);
    });
  });
  EXPECT_THAT(error, HasSubstr("rank 1 has the parameter weight Float [5, 3]"));
  EXPECT_THAT(error, HasSubstr("rank 0 has weight Float [4, 3]"));
}

TEST(DistributedDataParallel, GivesBuffersOfTheFirstRank) {
  comm::run_ranks(2, [&](comm::Communicator& group) {
    Net net(1);
    DistributedDataParallel parallel(net.ptr(), group);
    net->norm->running_mean.fill_(group.rank() + 3);
    parallel.broadcast_buffers();
    EXPECT_EQ(net->norm->running_mean.sum().item<double>(), 15);
  });
}

template <class Optimizer, class Options>
void expect_resumes(const Options& options) {
  const TemporaryFolder folder;
  const auto path = checkpoint::checkpoint_folder(folder.path(), 2);
  Net expected(1);
  Optimizer optimizer(expected->parameters(), options);
  for (int64_t step = 0; step < 4; ++step) {
    step_alone(expected, optimizer, step);
  }
  comm::run_ranks(2, [&](comm::Communicator& group) {
    Net net(1);
    DistributedDataParallel parallel(net.ptr(), group);
    Optimizer own(net->parameters(), options);
    for (int64_t step = 0; step < 2; ++step) {
      step_together(net, parallel, own, group, step, 1);
    }
    net->norm->running_mean.fill_(7);
    save_module(path, {*net, &own}, R"({"step": 2})", group);
  });
  comm::run_ranks(3, [&](comm::Communicator& group) {
    Net net(9);
    DistributedDataParallel parallel(net.ptr(), group);
    Optimizer own(net->parameters(), options);
    const auto found = checkpoint::latest_checkpoint(folder.path(), group);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(load_module(*found, {*net, &own}), R"({"step": 2})");
    EXPECT_EQ(net->norm->running_mean.sum().item<double>(), 35);
    net->norm->running_mean.zero_();
    for (int64_t step = 2; step < 4; ++step) {
      step_together(net, parallel, own, group, step, 1);
    }
    expect_equal_parameters(net, expected, 2e-5);
  });
}

TEST(ModuleCheckpoint, ResumesOnOtherRanksWithAdamW) {
  expect_resumes<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).eps(1e-5).amsgrad(true));
}

TEST(ModuleCheckpoint, ResumesOnOtherRanksWithAdam) {
  expect_resumes<torch::optim::Adam>(torch::optim::AdamOptions(1e-2).eps(1e-5));
}

TEST(ModuleCheckpoint, ResumesOnOtherRanksWithSgd) {
  expect_resumes<torch::optim::SGD>(torch::optim::SGDOptions(1e-2).momentum(0.9));
}

TEST(ModuleCheckpoint, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const auto path = checkpoint::checkpoint_folder(folder.path(), 1);
  comm::Communicator alone = comm::Communicator::alone();
  torch::nn::Linear saved(3, 4), other(3, 5);
  save_module(path, {*saved}, "{}", alone);
  const auto found = checkpoint::Checkpoint::open(path, alone);
  const auto before = other->weight.clone();
  const std::string error = error_of([&] { load_module(found, {*other}); });
  EXPECT_THAT(error, HasSubstr("weight"));
  EXPECT_THAT(error, HasSubstr("bias"));
  EXPECT_TRUE(torch::equal(other->weight, before));

  torch::optim::RMSprop unknown(saved->parameters());
  EXPECT_THAT(
      error_of([&] { save_module(path, {*saved, &unknown}, "{}", alone); }),
      HasSubstr("not torch::optim::AdamW"));
  torch::optim::AdamW foreign(other->parameters());
  EXPECT_THAT(
      error_of([&] { save_module(path, {*saved, &foreign}, "{}", alone); }),
      HasSubstr("that the module does not have"));
}

}  // namespace module_test
}  // namespace lockstep
