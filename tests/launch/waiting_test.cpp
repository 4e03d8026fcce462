// Tests of hang detection from the rank status, of the graph of waits, and of a process's stacks.
#include "launch/workers/waiting.h"

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/helpers.h"
#include "launch/system/step_file.h"
#include "launch/workers/stacks.h"
#include "launch/workers/supervisor.h"

namespace lockstep::launch {
namespace waiting_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNow = 1000;

/// A rank of `ranks` that trains and made progress a moment ago.
RankView rank_of(int rank, int ranks) {
  RankView view;
  view.rank_status.rank = rank;
  view.rank_status.ranks = ranks;
  view.rank_status.phase = "forward and backward";
  view.rank_status.changed = kNow - 0.5;
  view.rank_status.report_after = 30;
  view.process = 100 + rank;
  view.state = 'S';
  view.step = 7;
  view.median = 0.1;
  std::vector<int> all;
  for (int i = 0; i < ranks; ++i) {
    all.push_back(i);
  }
  view.rank_status.groups.push_back({"world", all, {5, 5, 5}});
  return view;
}

/// Puts a rank into a call, in which it has waited for `seconds`.
void wait_in(RankView& view, CallKind kind, double seconds) {
  GroupCalls& world = view.rank_status.groups.front();
  PendingCall wait{"all_reduce", "world", "", 12, {6}, kNow - seconds, world.ranks, kind, 0};
  if (kind == CallKind::kMessages) {
    wait.operation = "exchange";
  } else {
    wait.index = world.begun.at(static_cast<size_t>(kind))++;
  }
  view.rank_status.waits.push_back(wait);
  view.rank_status.changed = kNow - seconds;
}

std::vector<RankView> all_wait_but(int ranks, int idle, double seconds) {
  std::vector<RankView> views;
  for (int rank = 0; rank < ranks; ++rank) {
    views.push_back(rank_of(rank, ranks));
    if (rank == idle) {
      views.back().rank_status.changed = kNow - seconds - 1;
    } else {
      wait_in(views.back(), CallKind::kOther, seconds);
    }
  }
  return views;
}

TEST(Hangs, OneThatWaitsForNobodyIsNamedWithWhoWaitsForIt) {
  const std::vector<RankView> views = all_wait_but(4, 2, 40);
  const auto hang = find_hang(views, kNow);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<int>{2});
  EXPECT_EQ(
      describe_waiting(views, kNow),
      "  ranks 0, 1, 3 wait for rank 2: all_reduce number 12 of group world, shape [6], for 40 "
      "s\n");
  EXPECT_THAT(describe_hang(*hang, views, kNow), HasSubstr("rank 2 hangs: no progress for 41 s"));
}

TEST(Hangs, TheLimitIsTheLargerOfThreeMediansAndTheConfigurations) {
  std::vector<RankView> views = all_wait_but(3, 0, 40);
  for (RankView& view : views) {
    view.median = 20;
  }
  EXPECT_FALSE(find_hang(views, kNow));
  EXPECT_TRUE(find_hang(views, kNow + 20));
  EXPECT_TRUE(find_hang(views, kNow, 1.0));
  for (RankView& view : views) {
    view.rank_status.report_after = 0;
  }
  EXPECT_FALSE(find_hang(views, kNow + 1e6));  // detection is disabled
}

TEST(Hangs, BeforeTheFirstStepOnlyProcessesThatStandAreNamed) {
  std::vector<RankView> views = all_wait_but(3, 1, 400);
  for (RankView& view : views) {
    view.median = 0;
  }
  EXPECT_FALSE(find_hang(views, kNow));
  views[1].state = 'T';
  EXPECT_EQ(find_hang(views, kNow)->ranks, std::vector<int>{1});
}

TEST(Hangs, OneThatWasStoppedInTheCallItselfIsNamed) {
  std::vector<RankView> views = all_wait_but(3, -1, 40);
  views[1].state = 'T';
  EXPECT_EQ(find_hang(views, kNow)->ranks, std::vector<int>{1});
  EXPECT_THAT(
      describe_waiting(views, kNow),
      HasSubstr("ranks 0, 2 wait for rank 1 (which has arrived): all_reduce"));
}

TEST(Hangs, OneThatStandsIsNamedBeforeOneThatIsSlow) {
  std::vector<RankView> views = all_wait_but(4, 0, 40);
  views[3].state = 'D';
  EXPECT_EQ(find_hang(views, kNow)->ranks, std::vector<int>{3});
}

TEST(Hangs, NobodyIsNamedForARankOfAnotherMachine) {
  std::vector<RankView> views = all_wait_but(4, 3, 40);
  views.pop_back();
  EXPECT_FALSE(find_hang(views, kNow));
  EXPECT_EQ(describe_waiting(views, kNow), "");  // nothing is known about a rank of another machine
}

TEST(Hangs, RanksThatCameToDifferentOperationsAreACircle) {
  std::vector<RankView> views{rank_of(0, 2), rank_of(1, 2)};
  wait_in(views[0], CallKind::kGather, 40);
  wait_in(views[1], CallKind::kReduction, 40);
  const auto hang = find_hang(views, kNow);
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->is_circle);
  EXPECT_EQ(hang->ranks, (std::vector<int>{0, 1}));
  EXPECT_THAT(describe_hang(*hang, views, kNow), HasSubstr("they are in different operations"));
  views[1].rank_status.changed = kNow;  // one rank made progress
  EXPECT_FALSE(find_hang(views, kNow));
}

/// As with NCCL, the host continues while its device waits.
TEST(Hangs, DevicesThatWaitAreNoHostsThatHang) {
  std::vector<RankView> views = all_wait_but(3, 1, 40);
  for (RankView& view : views) {
    for (PendingCall& wait : view.rank_status.waits) {
      wait.on_device = true;
    }
  }
  views[1].rank_status.changed = kNow - 35;  // the hanging rank's host made progress last
  const auto hang = find_hang(views, kNow);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<int>{1});
  const std::string text = describe_hang(*hang, views, kNow);
  EXPECT_THAT(
      text,
      HasSubstr("ranks 0, 2 wait for rank 1: all_reduce number 12 of group world, shape [6]"));
  EXPECT_THAT(
      describe_rank(views[0], kNow), HasSubstr("last queued on its device: all_reduce number 12"));
  // All ranks have arrived: the call may have ended long ago, and no rank waits.
  views = all_wait_but(3, -1, 40);
  for (RankView& view : views) {
    view.rank_status.waits.front().on_device = true;
  }
  EXPECT_EQ(describe_waiting(views, kNow), "");
  views[2].state = 'T';
  EXPECT_THAT(
      describe_waiting(views, kNow), HasSubstr("ranks 0, 1 wait for rank 2 (which has arrived)"));
}

TEST(Hangs, AMessageIsWaitedForByItsOtherEndsAlone) {
  std::vector<RankView> views{rank_of(0, 3), rank_of(1, 3), rank_of(2, 3)};
  wait_in(views[0], CallKind::kMessages, 40);
  views[0].rank_status.waits[0].ranks = {1};
  wait_in(views[1], CallKind::kMessages, 40);
  views[1].rank_status.waits[0].ranks = {2};
  views[2].rank_status.changed = kNow - 41;
  EXPECT_EQ(find_hang(views, kNow)->ranks, std::vector<int>{2});
  const std::string graph = describe_waiting(views, kNow);
  EXPECT_THAT(graph, HasSubstr("rank 0 waits for rank 1"));
  EXPECT_THAT(graph, HasSubstr("rank 1 waits for rank 2"));
  EXPECT_THAT(graph, Not(HasSubstr("waits for rank 0")));
}

__attribute__((noinline)) void stand_in_a_named_function() {
  while (true) {
    ::pause();
  }
}

TEST(Stacks, AreReadFromOutsideAlsoWhereTheProcessIsStopped) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::thread([] { stand_in_a_named_function(); }).detach();
    ::usleep(50'000);
    [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
    stand_in_a_named_function();
  }
  const auto comes_to = [&](char state) {
    for (int tries = 0; tries < 500 && state_of(child) != state; ++tries) {
      ::usleep(10'000);
    }
    return state_of(child) == state;
  };
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(comes_to('S'));
  const std::string awake = stacks_of(child);
  EXPECT_THAT(awake, HasSubstr("thread " + std::to_string(child) + " ("));
  EXPECT_THAT(awake, HasSubstr("sleeping"));
  EXPECT_THAT(awake, HasSubstr("stand_in_a_named_function"));
  EXPECT_THAT(awake, HasSubstr("#0 "));
  EXPECT_TRUE(comes_to('S'));  // again, after reading the stacks woke it
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  const std::string stopped = stacks_of(child);
  EXPECT_THAT(stopped, HasSubstr("stand_in_a_named_function"));
  EXPECT_THAT(stopped, HasSubstr("stopped"));
  EXPECT_TRUE(comes_to('T'));  // again, after the stop
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(stacks_of(child), HasSubstr("does not exist"));
}

/// A worker that trains four steps. Then rank 1 stays in user code forever, without being stopped
/// by a signal, and rank 0 waits for it.
[[noreturn]] int work_and_hang() {
  RankStatus& told = *rank_status();
  told.set_limits(/*report_after=*/1, /*end_after=*/3);
  StepWriter steps(told.path());
  for (int step = 1; step <= 4; ++step) {
    steps.begin(step);
    ::usleep(20'000);
  }
  const std::vector<int> ranks{0, 1};
  const int group = told.add_group("world", ranks);
  if (std::string(std::getenv("RANK")) == "0") {
    const int64_t index = told.begin_call(group, CallKind::kOther);
    told.begin_wait(
        {"all_reduce", "world", "", 5, {3}, machine_seconds(), ranks, CallKind::kOther, index});
    while (true) {
      ::pause();
    }
  }
  told.begin_phase("a user's hook");
  stand_in_a_named_function();
  std::abort();
}

const testing::RegisterPart worker("work_and_hang", [](int, char**) { return work_and_hang(); });
const testing::RegisterPart supervisor("supervise_a_hang", [](int, char**) {
  SupervisorOptions options;
  options.workers = 2;
  options.argv = testing::part("work_and_hang");
  return supervise(options);
});

TEST(HangWatch, NamesARankThatHangsInUserCodeWithItsStackAndEndsIt) {
  const testing::Ran ran = testing::run(testing::part("supervise_a_hang"));
  EXPECT_EQ(ran.status.code, 128 + SIGKILL) << ran.error_output;
  EXPECT_THAT(ran.error_output, HasSubstr("rank 1 hangs: no progress for"));
  EXPECT_THAT(ran.error_output, HasSubstr("a user's hook"));
  EXPECT_THAT(
      ran.error_output, HasSubstr("rank 0 waits for rank 1: all_reduce number 5 of group world"));
  EXPECT_THAT(ran.error_output, HasSubstr("stand_in_a_named_function"));
  EXPECT_THAT(ran.error_output, HasSubstr("it hung for longer than training.hang_timeout"));
  const std::string root = ran.error_output.substr(ran.error_output.find("Root Cause"));
  EXPECT_THAT(root, HasSubstr("rank      : 1 "));
  EXPECT_THAT(root, HasSubstr("a user's hook"));
  EXPECT_LT(ran.seconds, 30);
}

}  // namespace waiting_test
}  // namespace lockstep::launch
