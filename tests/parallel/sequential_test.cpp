// Tests of pipelines of torch::nn::Sequential.
#include "parallel/pipeline/sequential.h"

#include <algorithm>
#include <mutex>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/threads.h"
#include "numbers.h"

namespace lockstep::parallel {
namespace sequential_test {

using comm::Communicator;

constexpr int kMicroBatches = 5;

/// Features come first and rows second, so the batch is not the first dimension. Returns three
/// tensors: one of integers, and one that needs no gradient.
struct EncodeImpl : torch::nn::Module {
  explicit EncodeImpl(int64_t width) : weight(register_parameter("w", torch::empty({width, 7}))) {}
  std::tuple<Tensor, Tensor, Tensor> forward(Tensor x, Tensor keys) {
    return {weight.matmul(x).tanh(), keys, x.detach()};  // [width, rows], [rows], [7, rows]
  }
  Tensor weight;
};
TORCH_MODULE(Encode);

struct MixImpl : torch::nn::Module {
  explicit MixImpl(int64_t width)
      : weight(register_parameter("w", torch::empty({width, width}))),
        table(register_parameter("t", torch::empty({3, width}))) {}
  std::tuple<Tensor, Tensor> forward(std::tuple<Tensor, Tensor, Tensor> in) {
    const auto& [hidden, keys, x] = in;
    return {
        (weight.matmul(hidden) + table.index({keys}).t()).tanh(),  // [width, rows]
        hidden.sum(0) + x.sum(0)};                                 // [rows]
  }
  Tensor weight, table;
};
TORCH_MODULE(Mix);

struct JoinImpl : torch::nn::Module {
  Tensor forward(std::tuple<Tensor, Tensor> in) {
    return (std::get<0>(in) * std::get<1>(in)).t();  // [rows, width]
  }
};
TORCH_MODULE(Join);

torch::nn::Sequential make_modules() {
  torch::nn::Sequential modules(
      Encode(6),
      Mix(6),
      Join(),
      torch::nn::Linear(6, 5),
      torch::nn::GELU(),
      torch::nn::Linear(5, 3));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::NoGradGuard no_grad;
  for (Tensor& parameter : modules->parameters()) {
    parameter.normal_(0, 0.4, generator);
  }
  return modules;
}

/// Returns micro-batches of 4 rows; the last one has 2.
std::vector<Tensors> make_inputs() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  std::vector<Tensors> inputs;
  for (int m = 0; m < kMicroBatches; ++m) {
    const int64_t rows = m + 1 == kMicroBatches ? 2 : 4;
    inputs.push_back(
        {torch::empty({7, rows}).normal_(0, 1, generator),
         torch::empty({rows}, torch::kLong).random_(0, 3, generator)});
  }
  return inputs;
}

Tensor loss_of(const Tensors& outputs, int micro_batch) {
  return outputs.front().square().sum() * (1.0 + micro_batch);
}

TEST(SequentialPipeline, LossAndGradientsAreThoseOfOneProcess) {
  auto whole = make_modules();
  double expected = 0;
  const auto inputs = make_inputs();
  for (int m = 0; m < kMicroBatches; ++m) {
    const Tensors& in = inputs[static_cast<size_t>(m)];
    const Tensor loss = loss_of({whole->forward(in[0], in[1])}, m);
    loss.backward();
    expected += loss.item<double>();
  }
  struct Case {
    const char* schedule;
    int ranks;
    const char* split;
  };
  for (const Case& plan :
       {Case{"gpipe", 2, "auto"},
        Case{"1f1b", 3, "auto"},
        Case{"1f1b", 3, "1,1,4"},
        Case{"zb-h1", 2, "2,4"},
        Case{"zb-v", 2, "1,1,1,3"},
        Case{"naive", 1, "auto"}}) {
    comm::run_ranks(plan.ranks, [&](Communicator& world) {
      const auto modules = make_modules();
      SequentialPipeline pipeline(modules, {.schedule = plan.schedule, .split = plan.split}, world);
      const std::vector<Tensors> nothing(kMicroBatches);
      const bool is_first = world.rank() == pipeline.schedules().rank_of(0);
      for (int repeat = 0; repeat < 2; ++repeat) {
        for (Tensor& parameter : pipeline.parameters()) {
          parameter.mutable_grad().reset();
        }
        const double loss = pipeline.forward_backward(is_first ? inputs : nothing, loss_of);
        numbers::expect_loss(loss, expected, plan.schedule, numbers::kRule * expected);
      }
      const auto theirs = whole->named_parameters();
      size_t compared = 0;
      for (const auto& item : modules->named_parameters()) {
        if (item.value().grad().defined()) {
          numbers::expect_values(
              item.value().grad(),
              theirs[item.key()].grad(),
              fmt::format("{} {}", plan.schedule, item.key()));
          ++compared;
        }
      }
      EXPECT_EQ(compared, pipeline.parameters().size());
    });
  }
}

TEST(SequentialPipeline, ShapesMayChangeFromStepToStep) {
  comm::run_ranks(2, [](Communicator& world) {
    SequentialPipeline pipeline(make_modules(), {}, world);
    auto inputs = make_inputs();
    const double first = pipeline.forward_backward(inputs, loss_of);
    std::reverse(inputs.begin(), inputs.end());
    EXPECT_NE(pipeline.forward_backward(inputs, loss_of), first);
    inputs.resize(2);
    EXPECT_LT(pipeline.forward_backward(inputs, loss_of), first);
  });
}

struct CountImpl : torch::nn::Module {
  int64_t forward(Tensor x) { return x.size(0); }
};
TORCH_MODULE(Count);

TEST(SequentialPipeline, SaysWhatCannotTravel) {
  comm::run_ranks(1, [](Communicator& world) {
    SequentialPipeline pipeline(torch::nn::Sequential(torch::nn::Linear(2, 2), Count()), {}, world);
    const std::vector<Tensors> inputs{{torch::ones({1, 2})}};
    try {
      (void)pipeline.forward_backward(inputs, loss_of);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("module 1"), std::string::npos) << error.what();
    }
    EXPECT_THROW(
        SequentialPipeline(
            torch::nn::Sequential(torch::nn::Linear(2, 2)),
            {.schedule = "interleaved", .virtual_stages = 2},
            world),
        Error);
  });
}

}  // namespace sequential_test
}  // namespace lockstep::parallel
