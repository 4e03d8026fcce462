// Tests of schedule kinds, their checks, timelines and drawings.
#include "schedule/schedule.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "schedule/check.h"
#include "schedule/draw.h"
#include "schedule/file.h"
#include "schedule/timeline.h"
#include "temporary_folder.h"

namespace lockstep::schedule {
namespace schedule_test {

constexpr std::array kAll{
    Kind::kNaive,
    Kind::kGpipe,
    Kind::kOneFOneB,
    Kind::kInterleaved,
    Kind::kZbH1,
    Kind::kZbH2,
    Kind::kZbV};

Timeline timed(const Request& request, StageTimes times = {}, double message = 0) {
  const Schedule schedule = make_schedule(request);
  return time_schedule(schedule, even_durations(schedule, times, message));
}

std::string error_of(const std::string& text) {
  try {
    parse_schedule(text, "x.txt");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  ADD_FAILURE() << "no error for\n" << text;
  return "";
}

TEST(Schedule, EveryKindIsProvedForEverySize) {
  for (const Kind kind : kAll) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int micro_batches = 1; micro_batches <= 21; ++micro_batches) {
        for (int chunks = 1; chunks <= (kind == Kind::kInterleaved ? 5 : 1); ++chunks) {
          const Request request{
              kind, ranks, micro_batches, kind == Kind::kInterleaved ? chunks : 0};
          const Schedule schedule = make_schedule(request);
          const Report report = check(schedule);
          ASSERT_TRUE(report.problems.empty())
              << kind_name(kind) << " " << ranks << " " << micro_batches << " " << chunks << ": "
              << report.problems.front();
        }
      }
    }
  }
}

TEST(Schedule, EqualTimesGiveThePublishedBubbles) {
  for (const Kind kind : kAll) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const int groups : {2, 3, 8}) {
        for (const int chunks :
             kind == Kind::kInterleaved ? std::vector{1, 2, 3} : std::vector{0}) {
          const Request request{kind, ranks, ranks * groups, chunks};
          const Timeline timeline = timed(request);
          const bool unsynchronised = kind == Kind::kZbH2 || kind == Kind::kZbV;
          EXPECT_NEAR(
              unsynchronised ? timeline.span_bubble() : timeline.bubble(),
              formula_bubble(request, 1, 1, 1),
              1e-9)
              << kind_name(kind) << " " << ranks << " ranks, " << groups << " groups, " << chunks;
        }
      }
    }
  }
}

TEST(Schedule, TheOrderOfTheKindsIsThePapers) {
  const auto bubble = [](Kind kind, int chunks = 0) {
    return timed({kind, 4, 12, chunks}).span_bubble();
  };
  EXPECT_GT(bubble(Kind::kNaive), bubble(Kind::kGpipe));
  EXPECT_GT(bubble(Kind::kOneFOneB), bubble(Kind::kInterleaved, 2));
  EXPECT_GT(bubble(Kind::kInterleaved, 2), bubble(Kind::kInterleaved, 4));
  EXPECT_GT(bubble(Kind::kOneFOneB), bubble(Kind::kZbH1));
  EXPECT_GT(bubble(Kind::kZbH1), bubble(Kind::kZbH2));
  EXPECT_GT(bubble(Kind::kZbH1), bubble(Kind::kZbV));
}

TEST(Schedule, HoldsWhatThePapersSay) {
  const auto held = [](Kind kind, int chunks = 0) {
    return check(make_schedule({kind, 4, 16, chunks})).held;
  };
  EXPECT_EQ(held(Kind::kNaive), (std::vector{1, 1, 1, 1}));
  EXPECT_EQ(held(Kind::kGpipe), (std::vector{16, 16, 16, 16}));
  EXPECT_EQ(held(Kind::kOneFOneB), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(held(Kind::kZbH1), (std::vector{4, 4, 4, 4}));
  EXPECT_EQ(held(Kind::kZbH2), (std::vector{7, 7, 7, 7}));
  EXPECT_EQ(held(Kind::kZbV), (std::vector{8, 8, 8, 8}));  // stages of half size
  EXPECT_EQ(
      held(Kind::kInterleaved, 2).front(),
      11);  // p (1 + (p - 1) / (p v)) rank loads of v stages each: 8 + 3
}

TEST(Schedule, MessagesOfTheOldKindsAreInOrder) {
  for (const Kind kind : {Kind::kNaive, Kind::kGpipe, Kind::kOneFOneB, Kind::kZbH1, Kind::kZbH2}) {
    EXPECT_TRUE(check(make_schedule({kind, 5, 7})).messages_in_order) << kind_name(kind);
  }
}

TEST(Schedule, RefusesWhatThereIsNot) {
  EXPECT_THROW(make_schedule({Kind::kOneFOneB, 0, 1}), Error);
  EXPECT_THROW(make_schedule({Kind::kOneFOneB, 2, 0}), Error);
  EXPECT_THROW(make_schedule({Kind::kOneFOneB, 2, 4, 2}), Error);
  EXPECT_THROW(make_schedule({Kind::kZbV, 2, 4, 3}), Error);
  EXPECT_THROW(make_schedule({Kind::kInterleaved, 1 << 20, 1 << 20, 1 << 20}), Error);
  try {
    parse_kind("1fb1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean '1f1b'?"), std::string::npos)
        << error.what();
  }
  for (const Kind kind : kAll) {
    EXPECT_EQ(parse_kind(kind_name(kind)), kind);
  }
}

TEST(ScheduleCheck, FindsWhatIsMissingDoubledOrOutOfPlace) {
  Schedule schedule = make_schedule({Kind::kOneFOneB, 2, 2});
  schedule.actions[0].pop_back();
  EXPECT_EQ(check(schedule).problems, (std::vector<std::string>{"0B1 is missing"}));
  schedule = make_schedule({Kind::kOneFOneB, 2, 2});
  schedule.actions[1].push_back({ActionKind::kForward, 1, 1});
  EXPECT_EQ(check(schedule).problems.front(), "1F1 appears twice");
  schedule = make_schedule({Kind::kZbH1, 2, 2});
  std::erase(schedule.actions[1], Action{ActionKind::kBackwardWeight, 1, 0});
  EXPECT_EQ(check(schedule).problems.front(), "1W0 is missing");
  schedule = make_schedule({Kind::kGpipe, 2, 2});
  schedule.held_limit[0] = 1;
  EXPECT_NE(check(schedule).problems.front().find("holds the activations of 2"), std::string::npos);
  schedule.actions[0].push_back({ActionKind::kForward, 1, 0});
  EXPECT_EQ(check(schedule).problems.front(), "rank 0 runs 1F0, but stage 1 is on rank 1");
}

TEST(ScheduleCheck, TellsADeadlockActionByAction) {
  const std::string text = error_of("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0\n");
  EXPECT_NE(text.find("deadlock: no rank"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0 is at 0B0 and waits for 1B0 of rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 is at 1F1 and waits for 0F1 of rank 0"), std::string::npos) << text;
}

TEST(ScheduleFile, ReadsBackWhatItWrites) {
  for (const Kind kind : kAll) {
    const Schedule schedule = make_schedule({kind, 3, 5});
    const Schedule read = parse_schedule(schedule_text(schedule), "x.txt");
    EXPECT_EQ(read.actions, schedule.actions);
    EXPECT_EQ(read.rank_of_stage, schedule.rank_of_stage);
    EXPECT_EQ(read.held_limit, schedule.held_limit);
  }
}

TEST(ScheduleFile, ReadsTablesWithEmptyCells) {
  const TemporaryFolder folder;
  write_file_atomically(
      folder.path() / "s.csv", "# two stages\r\n0F0,0F1,,,0B0,,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
  const Schedule schedule = read_schedule(folder.path() / "s.csv");
  EXPECT_EQ(schedule.ranks, 2);
  EXPECT_EQ(schedule.micro_batches, 2);
  EXPECT_EQ(schedule.held_limit, (std::vector{2, 1}));
  EXPECT_THROW(read_schedule(folder.path() / "missing"), Error);
}

TEST(ScheduleFile, RefusesWhatIsNoSchedule) {
  EXPECT_NE(error_of("").find("contains no actions"), std::string::npos);
  EXPECT_NE(
      error_of("0F0 0B0\n0X1\n").find("x.txt, line 2: '0X1' is not an action"), std::string::npos);
  EXPECT_NE(error_of("0F99999999999999999999").find("is not an action"), std::string::npos);
  EXPECT_NE(error_of("1000000F1000000").find("too few"), std::string::npos);
  EXPECT_NE(error_of("0F0 0B0\n2F0 2B0\n").find("rank -1"), std::string::npos);
  EXPECT_NE(
      error_of("held: 1 1\n0F0 0B0\n").find("has memory limits for 2 ranks"), std::string::npos);
  EXPECT_NE(error_of("held: 1\n0F0 0F1 0B0 0B1\n").find("its limit is 1"), std::string::npos);
  EXPECT_NE(error_of("held: x\n0F0 0B0\n").find("one integer per rank"), std::string::npos);
}

TEST(Timeline, MessagesAndUnequalStagesTakeTheirTime) {
  const Schedule schedule = make_schedule({Kind::kGpipe, 2, 1});
  Durations durations = even_durations(schedule, {1, 1, 1}, 0.5);
  durations.stages[1] = {3, 4, 5};
  const Timeline timeline = time_schedule(schedule, durations);
  EXPECT_DOUBLE_EQ(timeline.end, 1 + 0.5 + 3 + 9 + 0.5 + 2);
  EXPECT_DOUBLE_EQ(timeline.busy[0], 3);
  EXPECT_DOUBLE_EQ(timeline.spans[1][0].start, 1.5);
}

TEST(Draw, TextIsATableOfTimeAndSvgHasEveryAction) {
  const Schedule schedule = make_schedule({Kind::kOneFOneB, 2, 2});
  const Timeline timeline = time_schedule(schedule, even_durations(schedule, {}));
  const std::string text = draw_text(schedule, timeline);
  EXPECT_EQ(
      text,
      "rank 0   |F0 F1       B0...    B1...\n"
      "rank 1   |   F0 B0... F1 B1...\n");
  const std::string svg = draw_svg(schedule, timeline, "1f1b");
  size_t titles = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) {
    ++titles;
  }
  EXPECT_EQ(titles, 8U);
}

}  // namespace schedule_test
}  // namespace lockstep::schedule
