// Tests of measuring a machine between steps.
#include "train/machine/measuring.h"

#include <cstdlib>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace lockstep::train {
namespace measuring_test {

/// Sets an environment variable, or removes it, for its lifetime.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, /*overwrite=*/1);
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

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

TEST(Measuring, IsOnlyDoneIfTheUserAsks) {
  const TemporaryFolder cache;
  const Variable folder("XDG_CACHE_HOME", cache.path().c_str());
  const RankContext rank_context = alone();
  const Variable unset("LOCKSTEP_MEASURE_MACHINE", nullptr);
  EXPECT_FALSE(should_measure(false, rank_context));
  EXPECT_TRUE(should_measure(true, rank_context));
  const Variable off("LOCKSTEP_MEASURE_MACHINE", "0");
  EXPECT_FALSE(should_measure(true, rank_context));
  const Variable on("LOCKSTEP_MEASURE_MACHINE", "1");
  EXPECT_TRUE(should_measure(false, rank_context));
}

TEST(Measuring, IsForRanksOfOneMachineThatAreProcesses) {
  RankContext rank_context = alone();
  rank_context.ranks_are_threads = true;
  EXPECT_FALSE(should_measure(true, rank_context));
  rank_context.ranks_are_threads = false;
  rank_context.local_size = 3;  // differs from the world size
  EXPECT_FALSE(should_measure(true, rank_context));
}

}  // namespace measuring_test
}  // namespace lockstep::train
