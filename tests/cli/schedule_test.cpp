// Tests of `lockstep schedule`: its output, written files and errors.
#include "cli/schedule.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"

namespace lockstep::cli {
namespace schedule_test {

using Words = std::vector<std::string>;

std::string printed(const Words& words) {
  ::testing::internal::CaptureStdout();
  int code = -1;
  try {
    code = run_schedule(words);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_EQ(code, 0);
  return ::testing::internal::GetCapturedStdout();
}

std::string refused(const Words& words, ErrorKind kind = ErrorKind::kConfig) {
  ::testing::internal::CaptureStdout();
  std::string text;
  try {
    (void)run_schedule(words);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    text = error.what();
  }
  ::testing::internal::GetCapturedStdout();
  return text;
}

/// The bubble is (p - 1) / (m + p - 1) of the time for forward and backward passes of any length.
TEST(ScheduleCommand, TellsTheBubbleOfTheFormula) {
  const std::string text = printed({"--stages", "2", "--chunks", "2"});
  EXPECT_TRUE(text.starts_with("1f1b: 2 ranks, 2 stages, 2 micro-batches\n")) << text;
  EXPECT_NE(text.find("bubble 0.3333 of all ranks' time"), std::string::npos) << text;
  EXPECT_NE(
      text.find("bubble of the formula, with instantaneous messages: 0.3333"), std::string::npos)
      << text;
  EXPECT_NE(text.find("by rank: 2 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("verified: complete, free of deadlock"), std::string::npos) << text;
  EXPECT_NE(
      printed({"--stages", "2", "--chunks", "2", "--times", "3,1,2"}).find("bubble 0.3333"),
      std::string::npos);
}

TEST(ScheduleCommand, MessagesThatTakeTimeMakeTheBubbleLarger) {
  const std::string text = printed({"--stages", "2", "--chunks", "2", "--message", "0.5"});
  EXPECT_EQ(text.find("bubble 0.3333 of"), std::string::npos) << text;
  EXPECT_NE(text.find("instantaneous messages: 0.3333"), std::string::npos) << text;
}

TEST(ScheduleCommand, OneRankHasNone) {
  const std::string text = printed({"--stages", "1", "--chunks", "1"});
  EXPECT_NE(text.find("bubble 0.0000"), std::string::npos) << text;
}

TEST(ScheduleCommand, EveryKindIsDrawnAndProved) {
  for (const char* kind : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"}) {
    const std::string text = printed({"--kind", kind});
    EXPECT_TRUE(text.starts_with(std::string(kind) + ": 4 ranks")) << text;
    EXPECT_NE(text.find("verified: complete"), std::string::npos) << kind;
  }
}

TEST(ScheduleCommand, WhatItSavesIsTheSameSchedule) {
  const TemporaryFolder folder;
  const std::string actions = (folder.path() / "actions").string(),
                    again = (folder.path() / "again").string(),
                    drawing = (folder.path() / "drawing.svg").string();
  const std::string first =
      printed({"--kind", "zb-v", "--stages", "3", "--save", actions, "--svg", drawing});
  EXPECT_NE(first.find("actions: " + actions), std::string::npos);
  EXPECT_NE(first.find("drawing: " + drawing), std::string::npos);
  EXPECT_NE(read_file(drawing).find("<svg"), std::string::npos);
  EXPECT_NE(read_file(drawing).find("zb-v: 3 ranks, 6 stages, 8 micro-batches"), std::string::npos);
  const std::string second = printed({"--file", actions, "--save", again});
  const auto actions_of = [](const std::string& file) {  // after the title
    const std::string text = read_file(file);
    return text.substr(text.find('\n'));
  };
  EXPECT_EQ(actions_of(again), actions_of(actions));
  const auto bubble = [](const std::string& text) { return text.substr(text.find("bubble "), 13); };
  EXPECT_EQ(bubble(first), bubble(second));
  EXPECT_EQ(second.find("of the formula"), std::string::npos) << "a file has none";
}

TEST(ScheduleCommand, ALongOneIsToldInFigures) {
  const std::string text = printed({"--chunks", "200"});
  EXPECT_NE(text.find("too wide to draw as text: --svg FILE"), std::string::npos);
  EXPECT_NE(text.find("verified"), std::string::npos);
}

/// The stages sleep, so a rehearsal takes the predicted time.
TEST(ScheduleCommand, IsRehearsedOnThreads) {
  const std::string text =
      printed({"--stages", "2", "--chunks", "2", "--times", "1,1,1", "--rehearse", "2"});
  EXPECT_NE(text.find("rehearsed with stages that sleep 2 ms"), std::string::npos) << text;
}

TEST(ScheduleCommand, RefusesWhatCannotBe) {
  const std::vector<Words> wrong{
      {"--times", "1,1"},
      {"--times", "0,1,1"},
      {"--times", "1,-1,1"},
      {"--times", "1,nan,1"},
      {"--times", "1,1,1e12"},
      {"--message", "-0.5"},
      {"--message", "nan"},
      {"--rehearse", "-0.5"},
      {"--rehearse", "inf"},
      {"--stages", "0"},
      {"--stages", "-1"},
      {"--chunks", "0"},
      {"--stages", "two"},
      {"--kind", "2f2b"},
      {"--kind", "interleaved", "--virtual-stages", "-1"},
      {"four"}};
  for (const Words& words : wrong) {
    EXPECT_FALSE(refused(words).empty()) << words[0] << " " << words.back();
  }
  EXPECT_NE(refused({"--kind", "1f1c"}).find("1f1b"), std::string::npos) << "the nearest is named";
}

TEST(ScheduleCommand, AFileThatIsNoScheduleIsNamed) {
  const TemporaryFolder folder;
  const std::string none = (folder.path() / "none").string();
  try {
    (void)run_schedule({"--file", none});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(none), std::string::npos) << error.what();
  }
  write_file_atomically(folder.path() / "wrong", "this is no action\n");
  try {
    (void)run_schedule({"--file", (folder.path() / "wrong").string()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("wrong"), std::string::npos) << error.what();
  }
}

TEST(ScheduleCommand, AFolderThatIsNotThereIsAnErrorOfTheMachine) {
  const TemporaryFolder folder;
  const std::string place = (folder.path() / "none" / "a.svg").string();
  EXPECT_NE(refused({"--svg", place}, ErrorKind::kEnvironment).find("a.svg"), std::string::npos);
  EXPECT_NE(refused({"--save", place}, ErrorKind::kEnvironment).find("a.svg"), std::string::npos);
}

}  // namespace schedule_test
}  // namespace lockstep::cli
