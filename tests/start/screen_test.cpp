// Tests of the lines of the terminal monitor.
#include "start/screen.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "base/format.h"
#include "temporary_folder.h"

namespace lockstep::start {
namespace screen_test {

size_t letters_of(const std::string& line) {
  size_t letters = 0;
  for (const char byte : line) {
    letters += (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U ? 1 : 0;
  }
  return letters;
}

TEST(BrailleCurve, ARisingLineGoesFromBelowLeftToAboveRight) {
  const watch::Points points{{0, 1, 2, 3}, {0, 1, 2, 3}};
  // 4 by 4 dots in 2 by 1 characters: dots (0, 3), (1, 2), (2, 1), (3, 0).
  EXPECT_EQ(braille_curve(points, 2, 1, 0, 3), std::vector<std::string>{"\u2860\u280a"});
}

TEST(BrailleCurve, GapsAreNotJoinedAndWhatIsNoRangeIsEmpty) {
  const watch::Points points{{0, 1, 2}, {0, std::nan(""), 0}};
  const auto lines = braille_curve(points, 2, 1, 0, 1);
  EXPECT_EQ(lines, std::vector<std::string>{"\u2840\u2880"});
  EXPECT_EQ(braille_curve(points, 1, 2, 1, 1), (std::vector<std::string>{"\u2800", "\u2800"}));
  EXPECT_EQ(braille_curve({}, 1, 1, 0, 1), std::vector<std::string>{"\u2800"});
}

TEST(CutTo, CountsLettersAndLeavesOutWhatATerminalObeys) {
  EXPECT_EQ(cut_to("äöü", 2), "äö");
  EXPECT_EQ(cut_to("a\x1b[2Jb", 10), "a [2Jb");
  EXPECT_EQ(cut_to("abc", 0), "");
}

TEST(RunScreen, FillsEveryTerminalExactly) {
  const TemporaryFolder folder;
  {
    std::ofstream metrics(folder.path() / "metrics.jsonl");
    for (int step = 1; step <= 50; ++step) {
      metrics << fmt::format(
          "{{\"step\": {}, \"epoch\": 0.1, \"loss\": {}, \"odd\": null}}\n", step, 5.0 / step);
    }
    std::ofstream events(folder.path() / "events.jsonl");
    events << "{\"time\": 5, \"step\": 0, \"event\": \"began\", \"steps\": 100, \"plan\": \"data "
              "20\"}\n{\"time\": 6, \"step\": 50, \"event\": \"failed\", \"error\": "
              "\"\\u001b[31mred\"}\n{\"time\": 7, \"step\": 51, \"event\": \"slow rank\", "
              "\"rank\": 7, "
              "\"factor\": 1.5, \"by\": \"data\"}\n";
    std::ofstream ranks(folder.path() / "ranks.jsonl");
    std::string list = "[1";
    for (int rank = 1; rank < 20; ++rank) {
      list += ", 1";
    }
    list += "]";
    ranks << fmt::format(
        "{{\"step\": 3, \"steps\": 3, \"step_s\": {0}, \"data_wait_s\": {0}, "
        "\"communication_wait_s\": {0}, \"memory_bytes\": {0}}}\n",
        list);
  }
  RunScreen screen(folder.path());
  screen.refresh(100, "");
  EXPECT_EQ(screen.metrics(), (std::vector<std::string>{"loss", "odd"}));
  for (const size_t width : {40UL, 80UL, 200UL}) {
    for (const size_t height : {10UL, 17UL, 24UL, 60UL}) {
      for (const size_t metric : {0UL, 1UL, 7UL}) {
        const auto lines = screen.lines(width, height, metric);
        ASSERT_EQ(lines.size(), height);
        for (const std::string& line : lines) {
          EXPECT_LE(letters_of(line), width) << line;
          EXPECT_EQ(line.find('\x1b'), std::string::npos);
        }
      }
    }
  }
  std::string whole;
  for (const std::string& line : screen.lines(80, 24, 0)) {
    whole += line + "\n";
  }
  EXPECT_NE(whole.find("step 50"), std::string::npos) << whole;
  EXPECT_NE(whole.find("rank 0"), std::string::npos) << whole;
  EXPECT_NE(whole.find("more lines"), std::string::npos) << whole;
  EXPECT_NE(whole.find("failed"), std::string::npos) << whole;
  EXPECT_NE(whole.find("slow rank 7, 1.50 times, by its data"), std::string::npos) << whole;
}

TEST(RunScreen, AFolderWithoutMetricsSaysSo) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "metrics.jsonl") << "";
  RunScreen screen(folder.path());
  screen.refresh(100, "rank 0: step 3\nrank 1: step 3\n");
  const auto lines = screen.lines(60, 20, 3);
  EXPECT_EQ(lines[2], "no metrics yet");
  EXPECT_EQ(lines[3], "rank 0: step 3");
}

}  // namespace screen_test
}  // namespace lockstep::start
