// Tests that a captured step equals an uncaptured step bit for bit. On the host the body runs
// directly, without a CUDA graph.
#include "parallel/captured_training.h"

#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/training.h"

namespace lockstep::parallel {
namespace captured_training_test {

using comm::Communicator;
using namespace testing;

model::ModelConfig without_dropout(model::ModelConfig config) {
  config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0;
  return config;
}

std::vector<nn::ForwardInputs> inputs_of(
    const TrainingRun& run, const Communicator& group, int64_t step) {
  std::vector<nn::ForwardInputs> inputs;
  const int64_t count = run.plan.accumulation_steps;
  for (int64_t m = 0; m < count; ++m) {
    // Every rank and micro-batch has rows of one length; every fourth step has a shorter one.
    inputs.push_back(rows(run.config.vocab_size, step, group.rank() * count + m, 4));
    nn::ForwardInputs& own = inputs.back();
    for (Tensor* tensor : {&own.ids, &own.targets.tokens, &own.samples}) {
      *tensor = tensor->narrow(0, 0, step % 4 == 3 ? 2 : 3).clone();
    }
  }
  return inputs;
}

/// Losses and norms of eight steps, and the final state.
struct Ran {
  std::vector<double> numbers;
  State state;
  int captured = 0;  // number of steps through the captured body
};

enum class Through { kPlainSteps, kCapturedSteps };

Ran run_through(Through through, const TrainingRun& run) {
  Ran ran;
  std::mutex mutex;
  comm::run_ranks(run.ranks, [&](Communicator& group) {
    const auto model = make_parallel(run, group);
    std::unique_ptr<CapturedTraining> captured;
    for (int64_t step = 0; step < 8; ++step) {
      const auto inputs = inputs_of(run, group, step);
      const int64_t targets = 50 + step;
      const double rate = 1e-3 * static_cast<double>(step + 1);
      if (through == Through::kCapturedSteps && captured == nullptr) {
        captured = std::make_unique<CapturedTraining>(*model, inputs);
      }
      StepResult result;
      const bool fits = captured != nullptr && captured->fits(inputs);
      if (fits) {
        result = captured->run(inputs, targets, rate);
      } else {
        result = model->forward_backward(inputs, targets);
        model->optimizer_step(rate);
      }
      if (group.rank() == 0) {
        ran.captured += fits ? 1 : 0;
        ran.numbers.push_back(result.loss);
        ran.numbers.push_back(result.gradient_norm);
      }
    }
    const std::scoped_lock lock(mutex);
    collect_state(*model, ran.state);
  });
  return ran;
}

TEST(CapturedTraining, IsThePlainStepToTheBit) {
  for (const auto& config : {without_dropout(tied_config()), without_dropout(untied_config())}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const auto& [ranks, micro_batches] : std::vector<std::pair<int, int>>{{1, 2}, {2, 1}}) {
        for (const double most : {0.0, 0.05}) {
          TrainingRun run{config, small_plan(0, micro_batches), ranks, type};
          run.plan.max_gradient_norm = most;
          const Ran plain = run_through(Through::kPlainSteps, run);
          const Ran captured = run_through(Through::kCapturedSteps, run);
          EXPECT_EQ(plain.captured, 0);
          EXPECT_EQ(captured.captured, 6);  // two of the eight steps have other shapes
          EXPECT_EQ(plain.numbers, captured.numbers) << run.name();
          for (const auto& [name, tensor] : plain.state) {
            EXPECT_TRUE(at::equal(tensor, captured.state.at(name))) << name;
          }
        }
      }
    }
  }
}

/// Dropout masks differ in every step and equal those of uncaptured steps.
TEST(CapturedTraining, DrawsTheMasksOfThePlainSteps) {
  auto untied = untied_config();
  untied.residual_dropout = 0.1;
  for (const auto& config : {tied_config(), untied}) {
    for (const auto& [ranks, micro_batches] : std::vector<std::pair<int, int>>{{1, 2}, {2, 1}}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const TrainingRun run{config, small_plan(ranks, micro_batches), ranks, type};
        const Ran plain = run_through(Through::kPlainSteps, run);
        const Ran captured = run_through(Through::kCapturedSteps, run);
        EXPECT_EQ(captured.captured, 6);
        EXPECT_EQ(plain.numbers, captured.numbers) << run.name();
        TrainingRun dry = run;
        dry.config = without_dropout(config);
        EXPECT_NE(plain.numbers, run_through(Through::kPlainSteps, dry).numbers);
      }
    }
  }
}

/// Shards are gathered and gradients are reduced inside the captured body.
TEST(CapturedTraining, IsThePlainStepInEveryStageOfZero) {
  for (const int stage : {1, 2, 3}) {
    for (const int micro_batches : {1, 2}) {
      TrainingRun run{without_dropout(tied_config()), small_plan(stage, micro_batches), 2};
      run.plan.max_gradient_norm = 0.05;
      const Ran plain = run_through(Through::kPlainSteps, run);
      const Ran captured = run_through(Through::kCapturedSteps, run);
      EXPECT_EQ(captured.captured, 6);
      EXPECT_EQ(plain.numbers, captured.numbers) << run.name();
      for (const auto& [name, tensor] : plain.state) {
        EXPECT_TRUE(at::equal(tensor, captured.state.at(name))) << name;
      }
    }
  }
}

TEST(CapturedTraining, SaysWhyAStepCannotBeCaptured) {
  Communicator alone = Communicator::alone();
  const auto reason = [&](const std::function<void(TrainingRun&)>& change) {
    TrainingRun run{without_dropout(tied_config()), small_plan()};
    change(run);
    const auto model = make_parallel(run, alone);
    return CapturedTraining::obstacle(*model);
  };
  EXPECT_EQ(reason([](TrainingRun&) {}), "");
  EXPECT_THAT(
      reason([](TrainingRun& run) {
        run.plan.zero_stage = 1;
        run.plan.offload_optimizer.device = OffloadDevice::kCpu;
      }),
      ::testing::HasSubstr("state is offloaded"));
  EXPECT_EQ(reason([](TrainingRun& run) { run.config.residual_dropout = 0.1; }), "");
  EXPECT_THAT(
      reason([](TrainingRun& run) { run.plan.optimizer.optim = "lion_32bit"; }),
      ::testing::HasSubstr("lion_32bit"));
  EXPECT_THAT(
      reason([](TrainingRun& run) { run.type = at::kHalf; }), ::testing::HasSubstr("float16"));

  TrainingRun run{tied_config(), small_plan(), 1, at::kHalf};
  const auto model = make_parallel(run, alone);
  const auto inputs = inputs_of(run, alone, 0);
  EXPECT_THROW(CapturedTraining(*model, inputs), Error);
}

}  // namespace captured_training_test
}  // namespace lockstep::parallel
