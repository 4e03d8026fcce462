// Tests of run length and intervals.
#include "train/run_length.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::train {
namespace run_length_test {

TEST(RunLength, CountsEpochsInStepsAndRoundsUp) {
  config::TrainingSection training;
  training.num_train_epochs = 2.5;
  EXPECT_EQ(run_length(training, 7).total_steps, 18);
  EXPECT_NEAR(run_length(training, 7).epochs, 18.0 / 7, 1e-12);
  training.max_steps = 5;
  EXPECT_EQ(run_length(training, 7).total_steps, 5);
}

TEST(RunLength, SharesOfAllStepsBecomeSteps) {
  config::TrainingSection training;
  training.max_steps = 101;
  training.logging_steps = 0.1;
  training.save_steps = 0.5;
  training.eval_steps = 0.0001;
  const RunLength length = run_length(training, 10);
  EXPECT_EQ(length.logging_steps, 11);
  EXPECT_EQ(length.save_steps, 51);
  EXPECT_EQ(length.eval_steps, 1);
}

TEST(RunLength, EvaluationsFollowLoggingWhereNotGiven) {
  config::TrainingSection training;
  training.max_steps = 100;
  training.logging_steps = 20;
  EXPECT_EQ(run_length(training, 10).eval_steps, 20);
}

TEST(RunLength, AnEvaluationIsDueAtItsIntervalAndAfterTheLastStep) {
  EXPECT_TRUE(is_due("steps", 3, {.step = 6}));
  EXPECT_FALSE(is_due("steps", 3, {.step = 7, .epoch_ends = true}));
  EXPECT_TRUE(is_due("steps", 3, {.step = 7, .run_ends = true}));
  EXPECT_FALSE(is_due("steps", 0, {.step = 7}));
  EXPECT_TRUE(is_due("steps", 0, {.step = 7, .run_ends = true}));
  EXPECT_TRUE(is_due("epoch", 3, {.step = 7, .epoch_ends = true}));
  EXPECT_FALSE(is_due("epoch", 3, {.step = 6}));
  EXPECT_TRUE(is_due("epoch", 3, {.step = 6, .run_ends = true}));
  EXPECT_FALSE(is_due("no", 1, {.step = 1, .epoch_ends = true, .run_ends = true}));
  EXPECT_FALSE(is_due("best", 1, {.step = 1, .epoch_ends = true, .run_ends = true}));
}

TEST(RunLength, AnIntervalOfZeroIsLoggingStepsForEvaluationsAndNoneForSaves) {
  config::TrainingSection training;
  training.max_steps = 100;
  training.logging_steps = 20;
  training.eval_steps = 0;
  training.save_steps = 0;
  EXPECT_EQ(run_length(training, 10).eval_steps, 20);
  EXPECT_EQ(run_length(training, 10).save_steps, 0);
}

TEST(RunLength, AWholeNumberOfStepsIsNoShare) {
  config::TrainingSection training;
  training.max_steps = 100;
  training.logging_steps = 1;    // 1: every step; a value of 1 is not a share
  training.save_steps = 2.9;     // truncated to an integer, as in the Trainer
  training.eval_steps = 1000.0;  // beyond the end of the run
  const RunLength length = run_length(training, 10);
  EXPECT_EQ(length.logging_steps, 1);
  EXPECT_EQ(length.save_steps, 2);
  EXPECT_EQ(length.eval_steps, 1000);
}

TEST(RunLength, LessThanAnEpochIsAStepAtLeast) {
  config::TrainingSection training;
  training.num_train_epochs = 0.01;
  EXPECT_EQ(run_length(training, 7).total_steps, 1);
  EXPECT_NEAR(run_length(training, 7).epochs, 1.0 / 7, 1e-12);
  training.max_steps = 0;  // not set
  EXPECT_EQ(run_length(training, 7).total_steps, 1);
  training.max_steps = -1;
  training.num_train_epochs = 3;
  EXPECT_EQ(run_length(training, 1).total_steps, 3);
}

/// Two sources of 10 sequences; 4 sequences per step, 5 steps per epoch. `first` and `second` are
/// the sources' max_epochs.
data::SamplerOptions mixture(std::optional<int64_t> first, std::optional<int64_t> second) {
  data::SamplerOptions options;
  options.sequences = 20;
  options.global_batch = 4;
  options.sources = {{10, 1, first}, {10, 1, second}};
  return options;
}

std::string problem_of(const data::SamplerOptions& options, int64_t steps) {
  RunLength length;
  length.total_steps = steps;
  try {
    check_sources(options, length);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(CheckSources, AsManyDrawsAsTheSourcesAllow) {
  EXPECT_EQ(problem_of(mixture(1, 1), 5), "");
  EXPECT_NE(problem_of(mixture(1, 1), 6).find("needs 24 sequences"), std::string::npos);
  EXPECT_NE(problem_of(mixture(1, 1), 6).find("allow 20"), std::string::npos);
  EXPECT_NE(problem_of(mixture(1, 1), 6).find("max_steps=5"), std::string::npos);
  EXPECT_EQ(problem_of(mixture(1, 2), 7), "");
  EXPECT_NE(problem_of(mixture(1, 2), 8), "");
  EXPECT_EQ(problem_of(mixture(1, std::nullopt), 1000000), "");
  data::SamplerOptions plain = mixture(1, 1);
  plain.sources.clear();
  EXPECT_EQ(problem_of(plain, 1000000), "") << "no mixture";
}

/// The last step of an epoch is shorter: 3 epochs of 7 sequences are 21 sequences in 6 steps of 4.
TEST(CheckSources, ShortLastStepsDrawLess) {
  data::SamplerOptions options = mixture(3, 3);
  options.sequences = 7;
  options.sources = {{4, 1, 3}, {3, 1, 3}};
  EXPECT_EQ(problem_of(options, 6), "");
  EXPECT_NE(problem_of(options, 7), "");
}

}  // namespace run_length_test
}  // namespace lockstep::train
