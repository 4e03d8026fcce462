#include "train/run_length.h"

#include <gtest/gtest.h>

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

TEST(RunLength, TellsWhatIsDue) {
  EXPECT_TRUE(is_due("steps", 3, 6, false));
  EXPECT_FALSE(is_due("steps", 3, 7, true));
  EXPECT_TRUE(is_due("epoch", 3, 7, true));
  EXPECT_FALSE(is_due("epoch", 3, 6, false));
  EXPECT_FALSE(is_due("no", 1, 1, true));
}

}  // namespace run_length_test
}  // namespace lockstep::train
