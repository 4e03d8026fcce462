// Tests of every ZeRO stage with every kind of recomputation, offload and precision, on 1 to 4
// ranks, against one rank without them: three losses, and the gradients of the first step.
#include <gtest/gtest.h>

#include "parallel/training.h"
#include "temporary_folder.h"

namespace lockstep::parallel {
namespace zero_table_test {

using namespace testing;

struct Precision {
  const char* name;
  at::ScalarType type;
  bool stochastic;
  /// Relative tolerance of losses, and of gradients relative to the largest of their tensor. Sums
  /// over ranks are rounded to the type.
  double tolerance;
};

constexpr Precision kPrecisions[] = {
    {"float32", at::kFloat, false, 1e-5},
    {"bfloat16", at::kBFloat16, false, 3e-2},
    {"bfloat16, rounded stochastically", at::kBFloat16, true, 3e-2},
    {"float16", at::kHalf, false, 1e-2},
};

constexpr RecomputeOptions kRecomputes[] = {
    {Recompute::kNone, 1},
    {Recompute::kSelective, 1},
    {Recompute::kFull, 1},
    {Recompute::kFull, 2},
};

constexpr OffloadDevice kOffloads[] = {
    OffloadDevice::kNone, OffloadDevice::kCpu, OffloadDevice::kNvme};

TrainingRun run_of(const Precision& precision, int stage, int ranks) {
  TrainingRun run{tied_config(), small_plan(stage), ranks, precision.type, /*steps=*/3};
  run.plan.optimizer.stochastic_rounding = precision.stochastic;
  run.plan.loss_scale.fixed = 64;  // for float16
  return run;
}

class ZeroTable : public ::testing::TestWithParam<std::tuple<size_t, int>> {};

TEST_P(ZeroTable, EqualsOneRank) {
  const TemporaryFolder folder;
  const Precision& precision = kPrecisions[std::get<0>(GetParam())];
  const int ranks = std::get<1>(GetParam());
  const Outcome one = train(run_of(precision, 0, 1));
  for (const int stage : {0, 1, 2, 3}) {
    for (const RecomputeOptions& recompute : kRecomputes) {
      for (const OffloadDevice offload : kOffloads) {
        TrainingRun run = run_of(precision, stage, ranks);
        run.plan.recompute = recompute;
        run.plan.offload_optimizer = {offload, folder.path()};
        run.plan.offload_parameters = stage == 3 && offload != OffloadDevice::kNone;
        if (stage == 3 && offload == OffloadDevice::kNvme) {
          run.plan.parameter_folder = folder.path();
        }
        expect_equal(
            train(run),
            one,
            precision.tolerance,
            fmt::format(
                "{}, {}, recompute {} every {}, offload {}",
                precision.name,
                run.name(),
                static_cast<int>(recompute.kind),
                recompute.every,
                static_cast<int>(offload)));
      }
    }
  }
}

// Three ranks, with shards of unequal size; the rest of the table is part of the long tests.
INSTANTIATE_TEST_SUITE_P(
    OfThreeRanks,
    ZeroTable,
    ::testing::Combine(::testing::Range(size_t{0}, std::size(kPrecisions)), ::testing::Values(3)));
INSTANTIATE_TEST_SUITE_P(
    Long,
    ZeroTable,
    ::testing::Combine(
        ::testing::Range(size_t{0}, std::size(kPrecisions)), ::testing::Values(1, 2, 4)));

}  // namespace zero_table_test
}  // namespace lockstep::parallel
