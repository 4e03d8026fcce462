// Tests of metrics.jsonl and of windowed rates.
#include "monitor/metrics.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "monitor/memory.h"
#include "monitor/rates.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace metrics_test {

Record record_of(int64_t step, double loss) {
  return {.step = step, .epoch = 0.5 * static_cast<double>(step), .values = {{"loss", loss}}};
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(NumberText, ReadsBackExactly) {
  std::mt19937_64 bits(7);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(bits());
    if (std::isfinite(value)) {
      const std::string text = number_text(value);
      ASSERT_EQ(std::strtod(text.c_str(), nullptr), value) << text;
      ASSERT_TRUE(nlohmann::json::parse(text).is_number_float()) << text;
    }
  }
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(2.0), "2.0");
  EXPECT_EQ(number_text(-0.0), "-0.0");
  EXPECT_EQ(number_text(1e22), "1e+22");
  EXPECT_EQ(number_text(5e-324), "5e-324");
  EXPECT_EQ(number_text(int64_t{9007199254740993}), "9007199254740993");
}

TEST(NumberText, WritesNullWhereJsonHasNoNumber) {
  EXPECT_EQ(number_text(std::nan("")), "null");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "null");
}

TEST(MetricsFile, WritesALineAtOnceForEachRecord) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  MetricsFile file(path, 0);
  file.log(
      {.step = 10,
       .epoch = 0.25,
       .values = {{"loss", 3.5}, {"tokens", int64_t{1024}}, {"grad_norm", std::nan("")}}});
  EXPECT_EQ(
      read_file(path),
      "{\"step\": 10, \"epoch\": 0.25, \"loss\": 3.5, \"tokens\": 1024, \"grad_norm\": null}\n");
  file.log(
      {.kind = Record::Kind::kEvaluation,
       .step = 10,
       .epoch = 0.25,
       .values = {{"eval_loss", 3.25}}});
  file.log({.kind = Record::Kind::kSummary, .step = 10, .values = {{"train_runtime", 1.0}}});
  const std::string text = read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_NE(text.find("{\"step\": 10, \"epoch\": 0.25, \"eval_loss\": 3.25}\n"), std::string::npos);
}

TEST(MetricsFile, ContinuesAfterTheCheckpointsStep) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int64_t step = 1; step <= 5; ++step) {
      file.log(record_of(step, 1.0));
    }
  }
  const std::string whole = read_file(path);
  {
    MetricsFile file(path, 3);
    file.log(record_of(4, 2.0));
  }
  EXPECT_EQ(
      read_file(path),
      "{\"step\": 1, \"epoch\": 0.5, \"loss\": 1.0}\n{\"step\": 2, \"epoch\": 1.0, \"loss\": 1.0}\n"
      "{\"step\": 3, \"epoch\": 1.5, \"loss\": 1.0}\n{\"step\": 4, \"epoch\": 2.0, \"loss\": "
      "2.0}\n");
  MetricsFile(path, 0);  // not a resume: starts an empty file
  EXPECT_EQ(read_file(path), "");
  std::filesystem::remove(path);
  MetricsFile(path, 3);  // a resume whose metrics were moved away
  EXPECT_EQ(read_file(path), "");
}

TEST(MetricsFile, DropsATornLastLineWhereverItWasCut) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const std::string first = to_json_line(record_of(1, 1.25)) + "\n";
  const std::string second = to_json_line(record_of(2, 1.5)) + "\n";
  for (size_t cut = 0; cut < second.size(); ++cut) {
    write_file_atomically(path, first + second.substr(0, cut));
    MetricsFile(path, 9).log(record_of(3, 1.0));
    EXPECT_EQ(read_file(path), first + to_json_line(record_of(3, 1.0)) + "\n") << cut;
  }
}

TEST(MetricsFile, TellsThatTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "there is no /dev/full";
  }
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  std::filesystem::create_symlink("/dev/full", path);
  MetricsFile file(path, 0);
  const std::string message = message_of([&] { file.log(record_of(1, 1.0)); });
  EXPECT_NE(
      message.find("cannot write " + path.string() + ": No space left on device"),
      std::string::npos)
      << message;
  EXPECT_NE(message.find("try: free some space"), std::string::npos) << message;
}

TEST(WindowedRate, ForgetsWhatIsOlderThanItsWindow) {
  WindowedRate rate(10);
  EXPECT_EQ(rate.per_second(), 0);
  rate.start(100);
  EXPECT_EQ(rate.per_second(), 0);
  rate.add(101, 50);
  EXPECT_DOUBLE_EQ(rate.per_second(), 50);
  rate.add(105, 10);
  EXPECT_DOUBLE_EQ(rate.per_second(), 60.0 / 5);
  for (int second = 106; second < 200; ++second) {
    rate.add(second, 2);
  }
  EXPECT_DOUBLE_EQ(rate.per_second(), 2);
  rate.add(500, 30);  // an interval longer than the window counts completely
  EXPECT_DOUBLE_EQ(rate.per_second(), 30.0 / 301);
  rate.start(600);
  EXPECT_EQ(rate.per_second(), 0);
  rate.add(600, 5);  // no time has passed
  EXPECT_EQ(rate.per_second(), 0);
}

TEST(ProcessMemory, IsReadFromTheKernel) {
  const ProcessMemory parsed = parse_process_status(
      "Name:\tlockstep\nVmPeak:\t  99999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\nRssAnon:\t   "
      "512 kB\n");
  EXPECT_EQ(parsed.resident_bytes, 1024 * 1024);
  EXPECT_EQ(parsed.peak_resident_bytes, 2048 * 1024);
  EXPECT_EQ(parsed.anonymous_bytes, 512 * 1024);
  EXPECT_EQ(parse_process_status("").resident_bytes, 0);
  EXPECT_EQ(parse_process_status("VmRSS:").resident_bytes, 0);
  EXPECT_EQ(parse_process_status("VmRSS:\tmany kB\n").resident_bytes, 0);
  const ProcessMemory now = process_memory();
  EXPECT_GT(now.resident_bytes, 1 << 20);
  EXPECT_GE(now.peak_resident_bytes, now.resident_bytes);
}

}  // namespace metrics_test
}  // namespace lockstep::monitor
