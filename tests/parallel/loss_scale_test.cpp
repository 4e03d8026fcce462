// Tests of loss scaling for float16.
#include "parallel/loss_scale.h"

#include <gtest/gtest.h>

#include "parallel/training.h"

namespace lockstep::parallel {
namespace loss_scale_test {

using namespace testing;

TEST(LossScale, HalvesAfterOverflowsAndDoublesAfterAWindow) {
  LossScale scale({.initial_power = 3, .window = 2, .hysteresis = 2, .least = 2});
  EXPECT_EQ(scale.value(), 8);
  scale.overflowed();
  EXPECT_EQ(scale.value(), 8);  // hysteresis tolerates the first overflow
  scale.overflowed();
  EXPECT_EQ(scale.value(), 4);
  scale.succeeded();
  EXPECT_EQ(scale.value(), 4);
  scale.succeeded();
  EXPECT_EQ(scale.value(), 8);
  LossScale same({.initial_power = 3, .window = 2, .hysteresis = 2, .least = 2});
  same.set_state(scale.state());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(same.value(), scale.value());
    same.overflowed();
    scale.overflowed();
  }
  EXPECT_EQ(scale.value(), 2);
  EXPECT_FALSE(scale.can_fall());
  LossScale consecutive({.initial_power = 3, .window = 9, .hysteresis = 2, .consecutive = true});
  for (int i = 0; i < 3; ++i) {
    consecutive.overflowed();
    consecutive.succeeded();  // a good step resets the hysteresis
  }
  EXPECT_EQ(consecutive.value(), 8);
  EXPECT_EQ(LossScale({.fixed = 128}).value(), 128);
  EXPECT_EQ(LossScale().value(), 1);
}

TEST(Float16, TrainsNearFloat32InEveryStage) {
  const Outcome exact = train({.plan = small_plan()});
  for (const auto& [stage, ranks] :
       std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {2, 2}, {3, 3}}) {
    TrainingRun run{tied_config(), small_plan(stage, 2), ranks, at::kHalf};
    run.plan.loss_scale.fixed = 64;
    const Outcome half = train(run);
    for (size_t step = 0; step < exact.losses.size(); ++step) {
      EXPECT_NEAR(half.losses[step], exact.losses[step], 5e-3 * exact.losses[step]) << run.name();
    }
    EXPECT_TRUE(half.state.contains("optimizer:master.transformer.wte.weight"));
    TrainingRun on = run;
    on.plan.zero_stage = 1;
    on.ranks = 2;
    on.steps = 3;
    on.first_step = 10;
    TrainingRun same = run;
    same.steps = 3;
    same.first_step = 10;
    const auto first = train(on, half.state).losses, second = train(same, half.state).losses;
    for (size_t step = 0; step < 3; ++step) {
      EXPECT_NEAR(first[step], second[step], 2e-3 * second[step]);
    }
  }
}

TEST(Float16, LeavesOutStepsThatOverflowUntilTheScaleFits) {
  comm::Communicator alone = comm::Communicator::alone();
  TrainingRun run{.plan = small_plan(), .type = at::kHalf};
  run.plan.loss_scale.initial_power = 40;  // exceeds float16's range
  run.plan.loss_scale.hysteresis = 1;
  const auto model = make_parallel(run, alone);
  State before, after;
  collect_state(*model, before);
  int left_out = 0;
  for (int64_t step = 0; step < 40; ++step) {
    left_out += run_step(*model, run, alone, step).overflowed ? 1 : 0;
    model->optimizer_step(1e-3);
    if (step == 0) {
      collect_state(*model, after);
      EXPECT_TRUE(torch::equal(
          before.at("model:transformer.wte.weight"), after.at("model:transformer.wte.weight")));
      EXPECT_EQ(model->optimizer().steps(), 0);
    }
  }
  EXPECT_GT(left_out, 5);
  EXPECT_LT(left_out, 35);
  EXPECT_EQ(model->optimizer().steps(), 40 - left_out);
  EXPECT_EQ(model->loss_scale().value(), std::ldexp(1.0, 40 - left_out));
}

}  // namespace loss_scale_test
}  // namespace lockstep::parallel
