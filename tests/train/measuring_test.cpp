// Tests of measuring a machine between steps.
#include "train/machine/measuring.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace measuring_test {

RankContext alone() {
  return {.store = {}, .communicator = comm::Communicator::alone()};
}

TEST(Measuring, BeginsAfterSomeSecondsWhereItIsWanted) {
  RankContext rank_context = alone();
  const MeasuringBetweenSteps wanted(rank_context, true), not_wanted(rank_context, false);
  EXPECT_FALSE(wanted.is_due(0.5));
  EXPECT_TRUE(wanted.is_due(10));
  EXPECT_FALSE(not_wanted.is_due(10));
}

TEST(Measuring, APartCostsAFifthOfTheTimeAtMost) {
  RankContext rank_context = alone();
  MeasuringBetweenSteps measuring(rank_context, true);
  measuring.measure();  // takes a few milliseconds
  EXPECT_FALSE(measuring.is_due(3));
  EXPECT_TRUE(measuring.is_due(1000));
}

TEST(Measuring, ARunThatDidNotBeginItDoesNotFinishIt) {
  RankContext rank_context = alone();
  MeasuringBetweenSteps measuring(rank_context, true);
  measuring.finish();
  EXPECT_TRUE(measuring.is_due(10));
}

TEST(Measuring, FiguresAreOfAProcessorAndSoManyRanks) {
  EXPECT_EQ(machine_file(2), machine_file(2));
  EXPECT_NE(machine_file(2), machine_file(4));
  const std::string name = machine_file(2).filename();
  EXPECT_EQ(name.rfind("machine-2x", 0), 0U) << name;
  EXPECT_EQ(machine_file(2).extension(), ".yaml");
}

TEST(Measuring, IsForRanksOfOneMachineThatAreProcesses) {
  RankContext rank_context = alone();
  rank_context.ranks_are_threads = true;
  EXPECT_FALSE(is_unmeasured(rank_context));
  rank_context.ranks_are_threads = false;
  rank_context.local_size = 3;  // differs from the world size
  EXPECT_FALSE(is_unmeasured(rank_context));
}

}  // namespace measuring_test
}  // namespace lockstep::train
