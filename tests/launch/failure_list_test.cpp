// Tests of failure lists, repeated failures and restart limits.
#include "launch/workers/failure_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "launch/agent/channel.h"

namespace lockstep::launch {
namespace failure_list_test {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Failure failure(int rank, int code, size_t stack = 16 << 10) {
  Failure result;
  result.host = "n" + std::to_string(rank / 8);
  result.rank = rank;
  result.status.code = code;
  result.message = "lockstep::Error: text";
  result.callstack = std::string(stack, '\n') + "the innermost frame";
  result.last_lines.assign(50, std::string(2000, '"'));
  return result;
}

json travel(const FailureList& list) {
  json message;
  list.put_into(message);
  return message;
}

// The maximum number of workers with the longest reports fit into one message that includes the
// root cause.
TEST(FailureList, FitsIntoAMessageAndKeepsTheRootCause) {
  FailureList coordinator;
  for (int node = 0; node < 40; ++node) {
    FailureList agent;
    for (int worker = 0; worker < 25; ++worker) {
      const bool guilty = node == 39 && worker == 24;
      const size_t stack = node < 2 ? 4 << 20 : 16 << 10;
      agent.add(failure(25 * node + worker, guilty ? 3 : kPeerLostCode, stack));
    }
    EXPECT_LT(travel(agent).dump().size(), Channel::kLongestLine);
    coordinator.add_from(travel(agent));
  }
  const json message = travel(coordinator);
  EXPECT_LT(message.dump().size(), Channel::kLongestLine);
  FailureList received;
  received.add_from(message);
  ASSERT_EQ(received.failures().size(), FailureList::kMost);
  EXPECT_EQ(received.others(), 40 * 25 - static_cast<int64_t>(FailureList::kMost));
  const Failure& root = received.failures()[root_cause(received.failures())];
  EXPECT_EQ(root.status.code, 3);
  EXPECT_THAT(root.callstack, HasSubstr("the innermost frame"));
  EXPECT_THAT(report("x", received.failures(), 50, received.others()), HasSubstr("and 992 more"));
}

TEST(FailureList, KeepsARankThatHangsAmongManyThatLostIt) {
  FailureList list;
  for (int rank = 0; rank < 40; ++rank) {
    list.add(failure(rank, kPeerLostCode));
  }
  Failure hanging = failure(40, kPeerLostCode);
  hanging.hangs = true;
  list.add(std::move(hanging));
  FailureList received;
  received.add_from(travel(list));
  EXPECT_EQ(received.failures()[root_cause(received.failures())].rank, 40);
}

// Clocks differ between machines, so failures of different machines are ordered by arrival.
TEST(FailureList, OrdersMachinesByArrivalAndOneMachineByItsClock) {
  Failure first = failure(0, 3), later = failure(9, 4), same = failure(1, 5);
  first.time = 1000;
  later.time = 900;
  same.time = 999;
  EXPECT_EQ(root_cause({first, later}), 0U);
  EXPECT_EQ(root_cause({first, later, same}), 2U);
}

TEST(FailureList, PrintsNothingThatATerminalObeys) {
  Failure bad = failure(0, 3);
  bad.host = bad.error_file = bad.memory = bad.hint = bad.message = "\x1b]52;c;Y2F0\x07text\r";
  bad.callstack.clear();
  bad.last_lines = {"\x1b[2Jline"};
  const auto received = failure_from_json(to_json(bad));
  ASSERT_TRUE(received.has_value());
  const std::string shown = report("x", {*received});
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shown, Not(HasSubstr("\x07")));
  EXPECT_THAT(shown, Not(HasSubstr("\r")));
  EXPECT_THAT(shown, HasSubstr("text"));
}

TEST(Repetition, KnowsWhatComesAgain) {
  using Steps = std::vector<std::optional<int64_t>>;
  const auto expected = [](std::vector<int> codes, const char* message, const Steps& steps = {}) {
    Repetition repetition;
    bool last = false;
    for (size_t i = 0; i < codes.size(); ++i) {
      Failure one = failure(0, codes[i]);
      one.message = message;
      last = repetition.expected({one}, steps.empty() ? std::nullopt : steps[i]);
    }
    return last;
  };
  const char* const ours = "lockstep::Error: text";
  EXPECT_TRUE(expected({2}, ours));
  EXPECT_FALSE(expected({2}, "SystemExit: 2"));  // another program's exit codes have other meanings
  EXPECT_FALSE(expected({6}, ours));
  EXPECT_TRUE(expected({6, 6}, ours));
  EXPECT_FALSE(expected({6, 4, 6}, ours));
  EXPECT_FALSE(expected({4, 4, 4}, ours));
  EXPECT_FALSE(Repetition().expected({}, 3));
  // A later divergence has passed the step of the previous one.
  EXPECT_TRUE(expected({6, 6}, ours, {7, 7}));
  EXPECT_TRUE(expected({6, 6}, ours, {7, -1}));
  EXPECT_FALSE(expected({6, 6, 6}, ours, {7, 8, 90}));
  EXPECT_TRUE(expected({6, 6, 6}, ours, {7, 90, 8}));
  EXPECT_FALSE(expected({6, 4, 6}, ours, {7, 9, 7}));
}

TEST(Restarts, AreCountedInAWindowOrForTheWholeJob) {
  using std::chrono::seconds;
  const Restarts::Clock::time_point begin{seconds(1'000'000)};
  Restarts restarts;
  const RestartLimit hourly{2, seconds(3600)}, ever{2};
  for (const int64_t at : {0, 10, 3601, 3610}) {
    EXPECT_TRUE(restarts.may_be_one_more(hourly, begin + seconds(at))) << at;
    restarts.add(begin + seconds(at));
  }
  EXPECT_FALSE(restarts.may_be_one_more(hourly, begin + seconds(7200)));
  EXPECT_TRUE(restarts.may_be_one_more(hourly, begin + seconds(7201)));
  EXPECT_FALSE(restarts.may_be_one_more(ever, begin + seconds(1'000'000)));
  EXPECT_FALSE(restarts.may_be_one_more({}, begin + seconds(1'000'000)));
  // As received by the next coordinator, whose clock differs.
  const Restarts told = Restarts::from_json(restarts.to_json(begin + seconds(7200)), begin);
  EXPECT_EQ(told.count(), 4);
  EXPECT_FALSE(told.may_be_one_more(hourly, begin));
  EXPECT_TRUE(told.may_be_one_more(hourly, begin + seconds(1)));
}

TEST(Progress, EndsAJobThatGetsNoFurther) {
  using Steps = std::vector<std::optional<int64_t>>;
  const auto ended_after = [](const Steps& steps) {
    Progress progress;
    size_t rounds = 0;
    for (const auto step : steps) {
      ++rounds;
      progress = Progress::from_json(progress.to_json());  // as received by the next coordinator
      if (progress.in_vain(step, fmt::format("cause {}", rounds))) {
        return fmt::format("{}: {}", rounds, progress.told());
      }
    }
    return std::string();
  };
  const std::string words = "3 rounds in a row made no progress:\n    cause ";
  EXPECT_EQ(ended_after({7, 7, 3, 7}), "4: " + words + "2\n    cause 3\n    cause 4");
  EXPECT_EQ(ended_after({-1, -1, -1}), "3: " + words + "1\n    cause 2\n    cause 3");
  EXPECT_EQ(ended_after({7, 7, 7, 8, 8, 8, 9}), "");
  // Workers that fail before they report a step, after workers that reported some; and workers that
  // never report steps.
  EXPECT_EQ(ended_after({5, {}, {}, {}}), "4: " + words + "2\n    cause 3\n    cause 4");
  EXPECT_EQ(ended_after(Steps(9)), "");
}

}  // namespace failure_list_test
}  // namespace lockstep::launch
