// Time of a run by activity.
#include "train/time_account.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace lockstep::train {
namespace time_account_test {

TEST(TimeAccount, TellsTheShareThatTrainedAndTheRest) {
  TimeAccount account;
  account.add(TimeAccount::Use::kEvaluating, 1);  // before the first step
  account.begin(6);                               // 6 s after the process started
  account.add(TimeAccount::Use::kSteps, 80);
  account.add(TimeAccount::Use::kSaving, 4);
  account.add_waits(2, 3);
  EXPECT_DOUBLE_EQ(account.goodput(100), 0.8);
  EXPECT_EQ(
      account.text(100),
      "goodput 80.0%: of 100 s, 80 s went into steps (2 s of them waiting for data, 3 s for other "
      "ranks), 5 s into starting, 4 s into saving, 1 s into evaluating, 10 s into the rest");
  const nlohmann::json json = account.json(100);
  EXPECT_EQ(json.at("starting_s"), 5);
  EXPECT_EQ(json.at("comparing_s"), 0);
  EXPECT_EQ(json.at("communication_wait_s"), 3);
  EXPECT_EQ(TimeAccount().goodput(0), 0);
}

TEST(TimeAccount, TheProcessBeganWhenTheKernelSaysSo) {
  const double before = process_seconds();
  ::usleep(30'000);
  const double later = process_seconds();
  EXPECT_GE(before, 0);
  EXPECT_LT(before, 3600);
  EXPECT_GE(later - before, 0.02);
}

TEST(TimeAccount, LeavesOutWhatTookNoTimeAndCountsNothingBelowZero) {
  TimeAccount account;
  account.add(TimeAccount::Use::kSteps, 12);
  EXPECT_EQ(account.goodput(10), 1);  // two clocks may differ slightly
  EXPECT_EQ(
      account.text(10),
      "goodput 100.0%: of 10 s, 12 s went into steps (0 s of them waiting for data, 0 s for other "
      "ranks), 0 s into the rest");
  EXPECT_EQ(account.goodput(-1), 0);
}

}  // namespace time_account_test
}  // namespace lockstep::train
