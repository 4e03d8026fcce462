// Validity of checkpoints in object stores under competing leases.
#include "checkpoint/object_store_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::checkpoint {
namespace stored_test {

using ::testing::ElementsAre;

std::vector<int64_t> steps(const std::vector<ObjectStoreCheckpoint>& checkpoints) {
  std::vector<int64_t> steps;
  for (const ObjectStoreCheckpoint& each : checkpoints) {
    steps.push_back(each.step);
  }
  return steps;
}

ObjectStoreState state_under(std::vector<ObjectStoreLease> holds) {
  ObjectStoreState state;
  state.checkpoints = {
      {4, 5, "job-1.5", ""}, {3, 4, "job-0.4", ""}, {2, 3, "job-0.3", ""}, {2, 2, "x-1-0.2", ""}};
  state.holds = std::move(holds);
  return state;
}

using Names = std::set<std::string>;

TEST(StoredCheckpoints, WhoHasTheHighestHoldSaysWhichCount) {
  EXPECT_THAT(
      steps(state_under({}).committed()), ElementsAre(4, 3, 2, 2));  // step 2 also has a copy
  const ObjectStoreLease first{.number = 1, .token = "job-0", .inherited = Names{}};
  EXPECT_THAT(steps(state_under({first}).committed()), ElementsAre(3, 2));
  const ObjectStoreLease next{
      .number = 2, .token = "job-1", .inherited = Names{"checkpoint-2/job-0.3"}};
  EXPECT_THAT(
      steps(state_under({next, first}).committed()), ElementsAre(4, 2));  // without the late commit
  // Tokens are compared as a whole.
  const ObjectStoreLease other{.number = 3, .token = "job", .inherited = Names{}};
  EXPECT_THAT(steps(state_under({other, next}).committed()), ElementsAre());
}

TEST(StoredCheckpoints, WhoLooksYetLeavesItToTheHoldBelow) {
  const ObjectStoreLease first{
      .number = 1, .token = "job-0", .inherited = Names{"checkpoint-2/x-1-0.2"}};
  const ObjectStoreLease looking{.number = 2, .token = "job-1"};
  EXPECT_THAT(steps(state_under({looking, first}).committed()), ElementsAre(3, 2, 2));
}

TEST(StoredCheckpoints, NamesLieInTheirRun) {
  const objects::Location run{"s3", "bucket", "runs/mine"};
  EXPECT_EQ(
      (ObjectStoreCheckpoint{12, 3, "job-0.3", ""}.place(run).text()),
      "s3://bucket/runs/mine/checkpoint-12/job-0.3");
  EXPECT_EQ(
      (ObjectStoreLease{.number = 7, .token = "job-0"}.place(run).text()),
      "s3://bucket/runs/mine/.lockstep/00000007-job-0.json");
}

}  // namespace stored_test
}  // namespace lockstep::checkpoint
