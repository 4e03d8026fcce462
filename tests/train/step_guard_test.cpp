// A suspicious step is computed again on all ranks, and the second result is used.
#include "train/step_guard.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"
#include "ops/checked_products.h"

namespace lockstep::train {
namespace step_guard_test {

parallel::StepResult result_of(double loss, double norm) {
  parallel::StepResult result;
  result.loss = loss;
  result.gradient_norm = norm;
  return result;
}

/// Outcome of a step whose passes give `first` and then `second`, for a guard that has seen
/// ordinary steps. A NaN norm makes forward_backward throw.
struct Trial {
  parallel::StepResult first, second;
  bool repeats = true;

  GuardedStep run(comm::Communicator& world) const {
    StepGuard guard;
    for (int step = 0; step < 100; ++step) {
      const parallel::StepResult ordinary = result_of(2, 1 + 0.1 * std::sin(step));
      const GuardedStep kept = guard.run([&] { return ordinary; }, repeats, world);
      EXPECT_FALSE(kept.repeated) << step;
      EXPECT_FALSE(guard.observe(kept.result)) << step;
    }
    int calls = 0;
    return guard.run(
        [&] {
          const parallel::StepResult& given = calls++ == 0 ? first : second;
          if (std::isnan(given.gradient_norm)) {
            throw Error(ErrorKind::kNumeric, "the loss is not finite");
          }
          return given;
        },
        repeats,
        world);
  }
};

const double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(StepGuard, ProductsAreCheckedOnCpusAlone) {
  guard_products(true, at::kCPU);
  EXPECT_TRUE(ops::checks_products());
  guard_products(false, at::Device(at::kCUDA, 0));
  EXPECT_FALSE(ops::checks_products());
  EXPECT_THROW(guard_products(true, at::Device(at::kCUDA, 0)), Error);
  EXPECT_FALSE(ops::checks_products());
}

TEST(StepGuard, TakesTheSecondResultOfAStepThatWasComputedWrong) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    for (const auto& first : {result_of(2, 1e6), result_of(500, 1), result_of(2, kNone)}) {
      const GuardedStep step = Trial{first, result_of(2, 1.05)}.run(world);
      EXPECT_TRUE(step.repeated);
      EXPECT_EQ(step.result.gradient_norm, 1.05);
      EXPECT_EQ(step.result.loss, 2);
      EXPECT_TRUE(step.wrong);
    }
  });
}

TEST(StepGuard, KeepsWhatComesOutTwice) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const GuardedStep step = Trial{result_of(2, 1e6), result_of(2, 1e6)}.run(world);
    EXPECT_TRUE(step.repeated);
    EXPECT_FALSE(step.wrong);
    EXPECT_EQ(step.result.gradient_norm, 1e6);
    EXPECT_THROW((Trial{result_of(2, kNone), result_of(2, kNone)}.run(world)), Error);
  });
}

TEST(StepGuard, ComputesNothingTwiceUnlessAsked) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const GuardedStep step = Trial{result_of(2, 1e6), result_of(2, 1), false}.run(world);
    EXPECT_FALSE(step.repeated);
    EXPECT_EQ(step.result.gradient_norm, 1e6);
    EXPECT_THROW((Trial{result_of(2, kNone), result_of(2, 1), false}.run(world)), Error);
  });
}

}  // namespace step_guard_test
}  // namespace lockstep::train
