// Tests that other processes can read the status of a rank.
#include "base/rank_status.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

namespace lockstep {
namespace pulse_test {

std::filesystem::path scratch(const char* name) {
  return std::filesystem::temp_directory_path() / (std::string(name) + std::to_string(::getpid()));
}

PendingCall wait_in(const std::string& group, std::vector<int> ranks, int64_t index) {
  return {
      "all_gather", group, "layer 3", 12, {6, 5}, 1.5, std::move(ranks), CallKind::kGather, index};
}

TEST(RankStatus, TellsPhaseCoordinateGroupsAndWaits) {
  const std::filesystem::path path = scratch("pulse");
  RankStatus rank_status(path, 3, 8);
  rank_status.set_coordinate("data 1, tensor 0");
  rank_status.set_limits(30, 600);
  const std::vector<int> ranks{1, 3, 5};
  const int group = rank_status.add_group("data", ranks);
  EXPECT_EQ(rank_status.begin_call(group, CallKind::kGather), 0);
  EXPECT_EQ(rank_status.begin_call(group, CallKind::kGather), 1);
  EXPECT_EQ(rank_status.begin_call(group, CallKind::kReduction), 0);
  const int wait = rank_status.begin_wait(wait_in("data", ranks, 1));
  const double before = seconds_now();
  rank_status.begin_phase("forward and backward");
  const auto told = read_rank_status(path);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->process, ::getpid());
  EXPECT_EQ(told->rank, 3);
  EXPECT_EQ(told->ranks, 8);
  EXPECT_EQ(told->coordinate, "data 1, tensor 0");
  EXPECT_EQ(told->phase, "forward and backward");
  EXPECT_GE(told->phase_since, before);
  EXPECT_GE(told->changed, before);
  EXPECT_EQ(told->report_after, 30);
  EXPECT_EQ(told->end_after, 600);
  ASSERT_EQ(told->groups.size(), 1U);
  EXPECT_EQ(told->groups[0].begun, (std::array<int64_t, kMatchedKinds>{2, 1, 0}));
  ASSERT_EQ(told->waits.size(), 1U);
  EXPECT_EQ(told->waits[0].operation, "all_gather");
  EXPECT_EQ(told->waits[0].what, "layer 3");
  EXPECT_EQ(told->waits[0].sequence, 12);
  EXPECT_EQ(told->waits[0].shape, (std::vector<int64_t>{6, 5}));
  EXPECT_EQ(told->find_group(told->waits[0]), told->groups.data());
  rank_status.end_wait(wait);
  rank_status.remove_group(group);
  const auto later = read_rank_status(path);
  EXPECT_TRUE(later->waits.empty());
  EXPECT_TRUE(later->groups.empty());
  std::filesystem::remove(path);
}

TEST(RankStatus, LeavesOutWhatDoesNotFit) {
  RankStatus rank_status("", 0, 100);
  std::vector<int> ranks(100);
  std::iota(ranks.begin(), ranks.end(), 0);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(rank_status.add_group(std::string(200, 'g'), ranks), i);
  }
  EXPECT_EQ(rank_status.add_group("one too many", ranks), -1);
  EXPECT_EQ(rank_status.begin_call(-1, CallKind::kGather), 0);
  rank_status.remove_group(-1);
  PendingCall wait = wait_in(std::string(200, 'g'), ranks, 0);
  wait.shape.assign(20, 7);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(rank_status.begin_wait(wait), i);
  }
  EXPECT_EQ(rank_status.begin_wait(wait), -1);
  rank_status.end_wait(-1);
  const auto told = read_rank_status(rank_status.path());
  ASSERT_TRUE(told);
  EXPECT_EQ(told->groups.at(31).ranks.size(), 64U);
  EXPECT_EQ(told->groups.at(31).name.size(), 43U);
  EXPECT_EQ(told->waits.at(7).shape.size(), 6U);
  EXPECT_NE(told->find_group(told->waits[0]), nullptr);  // both were truncated in the same way
}

TEST(RankStatus, TellsTheLastThatWereLeftToADevice) {
  const std::filesystem::path path = scratch("left");
  RankStatus rank_status(path, 0, 2);
  for (int64_t call = 0; call < 20; ++call) {
    rank_status.leave_wait(rank_status.begin_wait(wait_in("left", {0, 1}, call)));
  }
  const int of_host = rank_status.begin_wait(wait_in("host", {0, 1}, 20));
  const auto told = read_rank_status(path);
  ASSERT_TRUE(told);
  std::set<int64_t> left;
  for (const PendingCall& wait : told->waits) {
    EXPECT_EQ(wait.on_device, wait.group == "left");
    if (wait.on_device) {
      left.insert(wait.index);
    }
  }
  EXPECT_EQ(left, (std::set<int64_t>{16, 17, 18, 19}));
  rank_status.leave_wait(-1);
  rank_status.end_wait(of_host);
  EXPECT_EQ(read_rank_status(path)->waits.size(), left.size());
  std::filesystem::remove(path);
}

TEST(RankStatus, OfNobodyIsNothing) {
  EXPECT_FALSE(read_rank_status("/no/such/file"));
  EXPECT_FALSE(read_rank_status("/dev/null"));
  const std::filesystem::path path = scratch("text");
  std::ofstream(path) << "7 0.0 0.5\n";  // a program that only reports steps
  EXPECT_FALSE(read_rank_status(path));
  std::filesystem::remove(path);
  const RankStatus nowhere("/no/such/folder/file", 0, 1);
  EXPECT_TRUE(nowhere.path().empty());
}

TEST(RankStatus, IsReadWhileManyThreadsWriteAndAfterItsProcessWasKilled) {
  const std::filesystem::path path = scratch("busy");
  const pid_t child = ::fork();
  if (child == 0) {
    RankStatus rank_status(path, 1, 2);
    const std::vector<int> ranks{0, 1};
    const int group = rank_status.add_group("world", ranks);
    for (int i = 0; i < 3; ++i) {
      std::thread([&] {
        while (true) {
          rank_status.begin_call(group, CallKind::kOther);
          rank_status.end_wait(rank_status.begin_wait(wait_in("world", ranks, 0)));
        }
      }).detach();
    }
    while (true) {
      rank_status.begin_phase("one");
      rank_status.begin_phase("another");
    }
  }
  int64_t last = 0, readings = 0;
  const auto look = [&] {
    const auto told = read_rank_status(path);
    if (told && !told->groups.empty()) {
      ++readings;
      EXPECT_GE(told->groups[0].begun[2], last);
      last = told->groups[0].begun[2];
      EXPECT_LE(told->waits.size(), 3U);
    }
  };
  const double end = seconds_now() + 10;
  while (readings < 200 && seconds_now() < end) {
    look();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  look();
  EXPECT_GT(readings, 100);
  std::filesystem::remove(path);
}

}  // namespace pulse_test
}  // namespace lockstep
