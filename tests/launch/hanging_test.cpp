// Tests of the report of a hanging worker.
#include <gtest/gtest.h>

#include "launch/workers/failure_report.h"

namespace lockstep::launch {
namespace hanging_test {

Failure lost(int rank, const std::string& message, int64_t time) {
  Failure failure;
  failure.rank = rank;
  failure.message = message;
  failure.time = time;
  failure.status.code = kPeerLostCode;
  return failure;
}

constexpr const char* kMessage =
    "lockstep::Error: rank 0 of 4: all_reduce number 12 of group world, shape [6], failed: no "
    "answer in 2 s from rank 3";

TEST(Hanging, TheRankThatGaveNoAnswerIsReadFromTheMessage) {
  EXPECT_EQ(unanswering_rank(kMessage), 3);
  EXPECT_EQ(
      unanswering_rank("rank 1 failed: no answer in 2 s from rank 2, which waits for rank 7"), 7);
  EXPECT_EQ(unanswering_rank("rank 1 failed: rank 0 ended: it had no answer from rank 5"), 5);
  EXPECT_EQ(unanswering_rank("rank 1 failed: rank 0 has ended"), std::nullopt);
  EXPECT_EQ(unanswering_rank("rank 1: no answer in 2 s from ranks 2, 3"), std::nullopt);
  EXPECT_EQ(unanswering_rank(""), std::nullopt);
}

TEST(Hanging, ItIsTheRootCauseAndTravels) {
  Worker worker;
  worker.rank = 3;
  worker.pid = 77;
  const Failure earlier = lost(0, kMessage, 10);
  const Failure hanging = describe_hanging(worker, lost(1, kMessage, 11));
  EXPECT_EQ(root_cause({earlier, hanging}), 1U);
  const std::string text = report("job", {earlier, hanging});
  const std::string root = text.substr(text.find("Root Cause"));
  EXPECT_NE(root.find("rank      : 3 "), std::string::npos) << root;
  EXPECT_NE(root.find("hanging: rank 1 timed out waiting"), std::string::npos) << root;
  EXPECT_NE(root.find("all_reduce number 12"), std::string::npos) << root;
  const auto travelled = failure_from_json(to_json(hanging));
  ASSERT_TRUE(travelled);
  EXPECT_TRUE(travelled->hangs);
  EXPECT_EQ(travelled->message, hanging.message);
}

}  // namespace hanging_test
}  // namespace lockstep::launch
