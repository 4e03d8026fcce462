// Tests of heartbeats: lost ranks, failed ranks and a lost store.
#include "comm/heartbeat.h"

#include <atomic>
#include <memory>
#include <stdexcept>

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"
#include "launch/system/job_store.h"

namespace lockstep::comm {
namespace heartbeat_test {

using std::chrono::milliseconds;
constexpr Heartbeat::Options kQuick{milliseconds(5), milliseconds(400)};

/// Waits up to 10 seconds until the count is reached.
bool comes(const std::atomic<int>& count, int wanted) {
  for (int i = 0; i < 2000 && count < wanted; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return count == wanted;
}

struct Job {
  launch::JobStore host;
  std::atomic<int> told = 0;
  std::vector<std::unique_ptr<Heartbeat>> ranks;

  Store connect() const { return join_store({.port = host.port(), .rank = 1, .size = 2}); }
  void start(int rank, int size, Heartbeat::Options options = kQuick) {
    ranks.push_back(
        std::make_unique<Heartbeat>(connect(), rank, size, options, [this] { ++told; }));
  }
};

TEST(Heartbeat, AFailureIsHeardByAll) {
  // A rank that connects slowly must not count as lost before the third rank fails.
  constexpr Heartbeat::Options kPatient{milliseconds(5), std::chrono::minutes(1)};
  Job job;
  job.start(0, 3, kPatient);
  job.start(1, 3, kPatient);
  try {
    const Heartbeat third(job.connect(), 2, 3, kPatient, [] {});
    throw std::runtime_error("this rank fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(comes(job.told, 2));
  EXPECT_EQ(lost_rank(), "rank 2 failed");
  const auto body = [](Communicator& group) { group.barrier(); };
  EXPECT_THROW(run_ranks(2, body), Error) << "a call waits for one that is gone";
}

TEST(Heartbeat, ASilentRankIsLost) {
  Job job;
  job.start(0, 3);  // rank 1 never sends a heartbeat
  job.start(2, 3);
  EXPECT_TRUE(comes(job.told, 2));
  EXPECT_EQ(lost_rank(), "rank 1 was silent for 0.4 s");
}

TEST(Heartbeat, WhoEndsWellIsNotMissed) {
  Job job;
  for (const int rank : {0, 1, 2}) {
    job.start(rank, 3);
  }
  job.ranks.pop_back();
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_EQ(job.told, 0);
  EXPECT_EQ(lost_rank(), "");
}

}  // namespace heartbeat_test
}  // namespace lockstep::comm
