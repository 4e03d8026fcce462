// Tests of a run's records: where a resume continues, and damaged lines.
#include "monitor/line_file.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "monitor/memory.h"
#include "monitor/monitor.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace line_file_test {

class Lines : public testing::Test {
 protected:
  static std::string line(int64_t step, size_t length = 0) {
    return fmt::format("{{\"step\": {}, \"x\": \"{}\"}}\n", step, std::string(length, 'x'));
  }

  /// Writes a record, opens it after a step, and returns what it then contains.
  std::string opened(const std::string& text, int64_t after) {
    std::filesystem::remove(path_);
    std::filesystem::remove(aside_);
    write_file_atomically(path_, text);
    LineFile::after_step(path_, after);
    return read_file(path_);
  }

  /// Returns what was set aside, or "-".
  std::string aside() const { return std::filesystem::exists(aside_) ? read_file(aside_) : "-"; }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "record.jsonl",
                        aside_ = folder_.path() / "record.jsonl.damaged";
};

TEST_F(Lines, UpToAStepAreKept) {
  std::mt19937 dice(3);
  for (int trial = 0; trial < 40; ++trial) {
    std::string text, kept;
    const int64_t lines = 1 + static_cast<int64_t>(dice() % 30);
    const int64_t after = 1 + static_cast<int64_t>(dice() % static_cast<uint64_t>(lines));
    for (int64_t i = 0; i < lines; ++i) {
      // Also lines that are longer than the blocks that are read.
      const std::string next = line(1 + i, dice() % 4 == 0 ? dice() % 300000 : dice() % 50);
      text += next;
      kept += 1 + i <= after ? next : "";
    }
    EXPECT_EQ(opened(text, after), kept) << trial;
    EXPECT_EQ(aside(), "-");
  }
  EXPECT_EQ(opened(line(5) + line(6), 4), "");
  EXPECT_EQ(opened(line(5) + line(5) + line(6), 5), line(5) + line(5));
  EXPECT_EQ(opened("", 4), "");
}

TEST_F(Lines, ThatAreDamagedAtTheEndAreSetAside) {
  const std::string zeros(4096, '\0');
  for (const std::string& bad :
       {zeros + "\n",
        zeros + line(2),
        std::string("{\"step\": 2, \"lo") + line(2),
        std::string("hello\n"),
        std::string("[1]\n"),
        std::string("{\"step\": \"x\"}\n"),
        std::string("{\"step\": 2, \"x\": ") + std::string(100000, '[') + "\n",
        std::string("\n")}) {
    EXPECT_EQ(opened(line(1) + bad, 2), line(1)) << bad;
    EXPECT_EQ(aside(), bad);
    EXPECT_EQ(opened(line(1) + bad + line(3), 2), line(1)) << bad;
    EXPECT_EQ(aside(), bad + line(3));
    // Before a line that is kept: for readers to skip.
    EXPECT_EQ(opened(line(1) + bad + line(2) + line(3), 2), line(1) + bad + line(2)) << bad;
    EXPECT_EQ(aside(), "-");
    EXPECT_EQ(opened(bad, 2), "") << bad;
    EXPECT_EQ(aside(), bad);
  }
}

TEST_F(Lines, OfAHugeFileAreReadFromItsEnd) {
  constexpr uint64_t kHuge = uint64_t{3} << 30;  // a hole: takes no disk space
  {
    File file(path_, File::Mode::kCreate);
    const std::string end = "\n" + line(7) + line(8) + line(9);
    file.write_at(kHuge, std::as_bytes(std::span(end)));
  }
  const int64_t before = process_memory().peak_resident_bytes;
  LineFile lines = LineFile::after_step(path_, 8);
  lines.append("{}");
  EXPECT_LT(process_memory().peak_resident_bytes - before, int64_t{64} << 20);
  EXPECT_EQ(std::filesystem::file_size(path_), kHuge + 1 + line(7).size() + line(8).size() + 3);
  EXPECT_EQ(aside(), "-");
}

TEST_F(Lines, ThatCannotBeFoundAreSetAsideWithTheWholeFile) {
  write_file_atomically(path_, line(1));
  const uint64_t size = uint64_t{3} << 30;
  std::filesystem::resize_file(path_, size);  // zeros without a newline
  LineFile::after_step(path_, 1).append("{}");
  EXPECT_EQ(read_file(path_), "{}\n");
  EXPECT_EQ(std::filesystem::file_size(aside_), size);
}

TEST_F(Lines, AreAddedAtTheEndWhicheverProcessMovedIt) {
  LineFile first = LineFile::after_step(path_, 0);
  first.append("{\"step\": 1}");
  first.append("{\"step\": 2}");
  LineFile second = LineFile::after_step(path_, 1);
  first.append("{\"step\": 3}");
  second.append("{\"step\": 2}");
  EXPECT_EQ(read_file(path_), "{\"step\": 1}\n{\"step\": 3}\n{\"step\": 2}\n");
}

TEST_F(Lines, ThatAreDamagedDoNotEndAResume) {
  const std::string bad(4096, '\0');
  for (const char* const name : {"metrics.jsonl", "ranks.jsonl", "events.jsonl"}) {
    write_file_atomically(folder_.path() / name, line(1) + bad + "\n" + bad);
  }
  TrainerState resumed;
  resumed.global_step = 2;
  Monitor monitor(
      {.output_dir = folder_.path(), .logging_steps = 1, .progress = Progress::Style::kSilent},
      resumed);
  monitor.step({.step = 3, .loss = 1, .step_s = 0.5});
  EXPECT_TRUE(read_file(folder_.path() / "metrics.jsonl").starts_with(line(1) + "{\"step\": 3,"));
  EXPECT_EQ(read_file(folder_.path() / "ranks.jsonl"), line(1));
}

}  // namespace line_file_test
}  // namespace lockstep::monitor
