// Tests of reading, summarizing and comparing runs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "temporary_folder.h"
#include "watch/record/columns.h"
#include "watch/record/compare.h"
#include "watch/record/downsample.h"
#include "watch/record/run.h"

namespace lockstep::watch {
namespace record_test {

class Record : public testing::Test {
 protected:
  void add(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name, std::ios::app) << text;
  }
  void put(const std::string& name, const std::string& text) {
    std::filesystem::remove(folder_.path() / name);
    add(name, text);
  }
  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }

  TemporaryFolder folder_;
};

TEST_F(Record, ColumnsHoldEveryNumberOfALine) {
  add("m",
      "{\"step\": 1, \"epoch\": 0.5, \"loss\": 6.25, \"grad_norm\": null}\n"
      "{\"step\": 1, \"epoch\": 0.5, \"eval_loss\": -1e-05}\n"
      "{\"step\": 3, \"epoch\": 1.0, \"loss\": 5}\n");
  MetricsReader reader(path("m"));
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.find("loss").steps, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(reader.find("loss").values, (std::vector<double>{6.25, 5}));
  EXPECT_EQ(reader.find("eval_loss").values, (std::vector<double>{-1e-05}));
  EXPECT_TRUE(std::isnan(reader.find("grad_norm").values.at(0)));
  EXPECT_EQ(reader.find("nothing").size(), 0U);
  EXPECT_EQ(reader.last_step(), 3);
  EXPECT_EQ(reader.bad_lines(), 0);
  EXPECT_FALSE(reader.refresh());
}

TEST_F(Record, LinesThatAreNoneArePassedOver) {
  add("m",
      "{\"step\": 1, \"loss\": 1.0}\n"
      "not json\n"
      "{\"loss\": 2.0}\n"
      "{\"step\": 1.5, \"loss\": 2.0}\n"
      "{\"step\": 2, \"loss\": inf}\n"
      "\n"
      "{\"step\": 3, \"loss\": 3.0, \"name\": \"a,b\", \"list\": [1], \"k\\u0061\": 4}\n"
      "{\"loss\":4.0,\"step\":4}\n");
  MetricsReader reader(path("m"));
  reader.refresh();
  EXPECT_EQ(reader.find("loss").steps, (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(reader.find("loss").values, (std::vector<double>{1, 3, 4}));
  EXPECT_EQ(reader.find("ka").values, (std::vector<double>{4}));
  EXPECT_EQ(reader.bad_lines(), 4);
}

TEST_F(Record, NumbersAreThoseOfTheirText) {
  std::vector<std::string> texts{
      "0",
      "-0.0",
      "7",
      "12345678",
      "123456789.12345678",
      "9007199254740992",
      "9007199254740993.0",
      "1234567890123456789",
      "12345678901234567890.5",
      "0.00000000000000000000000000001",
      "0.1234567812345678",
      "5e-324",
      "1.7976931348623157e+308",
      "-1E5",
      "null"};
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value)) {
      texts.push_back(fmt::format("{}", value));
    }
    const double usual = static_cast<double>(random()) / 1e16 - 900;
    texts.push_back(fmt::format("{}", usual));
    texts.push_back(fmt::format("{:.{}f}", usual, i % 24));
  }
  std::string lines;
  for (const std::string& text : texts) {
    lines += fmt::format("{{\"step\": 1, \"loss\": {}}}\n", text);
  }
  add("m", lines);
  MetricsReader reader(path("m"));
  reader.refresh();
  const Series& read = reader.find("loss");
  ASSERT_EQ(read.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const double value = texts[i] == "null" ? std::nan("") : std::strtod(texts[i].c_str(), nullptr);
    ASSERT_EQ(std::bit_cast<uint64_t>(read.values[i]), std::bit_cast<uint64_t>(value)) << texts[i];
  }
  for (const char* text : {"1.", ".5", "-", "1.5.5", "1 2", "", "nul"}) {
    put("m", fmt::format("{{\"step\": 1, \"loss\": {}}}\n", text));
    MetricsReader bad(path("m"));
    bad.refresh();
    EXPECT_EQ(bad.bad_lines(), 1) << text;
  }
}

TEST_F(Record, LinesOfManyFormsAreReadByThem) {
  std::string lines;
  for (int step = 0; step < 100; ++step) {
    lines += fmt::format("{{\"step\": {}, \"m{}\": {}, \"loss\": 1.5}}\n", step, step % 13, step);
  }
  add("m", lines);
  MetricsReader reader(path("m"));
  reader.refresh();
  EXPECT_EQ(reader.find("m3").values, (std::vector<double>{3, 16, 29, 42, 55, 68, 81, 94}));
  EXPECT_EQ(reader.find("loss").size(), 100U);
  EXPECT_EQ(reader.bad_lines(), 0);
}

TEST_F(Record, AFileIsReadOnWhileItIsWritten) {
  MetricsReader reader(path("m"));
  EXPECT_FALSE(reader.refresh());  // the file does not exist yet
  add("m", "{\"step\": 1, \"loss\": 1.5}\n{\"step\": 2, \"lo");
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.find("loss").size(), 1U);
  EXPECT_FALSE(reader.refresh());  // an incomplete line is left for later
  add("m", "ss\": 2.5}\n");
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.find("loss").values, (std::vector<double>{1.5, 2.5}));
}

TEST_F(Record, AFileThatWasCutOrMadeAnewIsReadAnew) {
  add("m", "{\"step\": 1, \"loss\": 1.5}\n{\"step\": 2, \"loss\": 2.5}\n");
  MetricsReader reader(path("m"));
  reader.refresh();
  put("m", "{\"step\": 1, \"loss\": 1.5}\n");
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.find("loss").values, (std::vector<double>{1.5}));
  put("m",
      "{\"step\": 1, \"loss\": 7.5}\n{\"step\": 2, \"loss\": 8.5}\n");  // longer than before and
                                                                        // with other contents
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.find("loss").values, (std::vector<double>{7.5, 8.5}));
  put("m", "");
  EXPECT_TRUE(reader.refresh());
  EXPECT_TRUE(reader.series().empty());
}

TEST_F(Record, AFileThatIsGoneHasNoLines) {
  add("m", "{\"step\": 1, \"loss\": 1.5}\n");
  MetricsReader reader(path("m"));
  EXPECT_TRUE(reader.refresh());
  std::filesystem::remove(path("m"));
  EXPECT_TRUE(reader.refresh());
  EXPECT_TRUE(reader.series().empty());
  EXPECT_FALSE(reader.refresh());
}

TEST_F(Record, LargeFilesAreReadInSharesInTheirOrder) {
  std::string text;
  for (int step = 1; step <= 60000; ++step) {
    text += fmt::format("{{\"step\": {}, \"loss\": {}.5, \"tokens\": {}}}\n", step, step, 2 * step);
    if (step % 1000 == 0) {
      text += fmt::format("{{\"step\": {}, \"eval_loss\": {}}}\n", step, -step);
    }
  }
  add("m", text);
  MetricsReader reader(path("m"));
  reader.refresh();
  const Series& loss = reader.find("loss");
  ASSERT_EQ(loss.size(), 60000U);
  for (size_t i = 0; i < loss.size(); ++i) {
    ASSERT_EQ(loss.steps[i], static_cast<int64_t>(i) + 1);
    ASSERT_EQ(loss.values[i], static_cast<double>(i) + 1.5);
  }
  EXPECT_EQ(reader.find("eval_loss").steps.back(), 60000);
  EXPECT_EQ(reader.find("tokens").values.back(), 120000);
}

TEST_F(Record, OfALongFileAPartIsThereAtOnce) {
  std::string text;
  for (int step = 1; step <= 60000; ++step) {
    text += fmt::format("{{\"step\": {}, \"loss\": {}.5}}\n", step, step);
  }
  add("m", text + "{\"step\": 60001, \"lo");
  MetricsReader reader(path("m"), /*long_from=*/1000);
  EXPECT_TRUE(reader.look());
  ASSERT_TRUE(reader.is_partial());
  const Series& some = reader.find("loss");
  EXPECT_GE(some.size(), 1000U);
  EXPECT_LE(some.size(), 4001U);
  EXPECT_EQ(some.steps.front(), 1);
  EXPECT_EQ(some.steps.back(), 60000);
  EXPECT_TRUE(std::is_sorted(some.steps.begin(), some.steps.end()));
  EXPECT_EQ(reader.last_step(), 60000);
  EXPECT_EQ(some.values[7], static_cast<double>(some.steps[7]) + 0.5);
  while (reader.is_partial()) {
    reader.look();
  }
  EXPECT_EQ(reader.find("loss").size(), 60000U);
  EXPECT_EQ(reader.bad_lines(), 0);
  add("m", "ss\": 1.5}\n");
  EXPECT_TRUE(reader.look());
  EXPECT_EQ(reader.find("loss").steps.back(), 60001);
  // refresh() waits for the complete data.
  MetricsReader whole(path("m"), /*long_from=*/1000);
  whole.look();
  whole.refresh();
  EXPECT_EQ(whole.find("loss").size(), 60001U);
  // A file with one line, and an empty file.
  put("one", "{\"step\": 1, \"loss\": 2.5}\n");
  MetricsReader one(path("one"), /*long_from=*/1);
  one.look();
  EXPECT_EQ(one.find("loss").size(), 1U);
  put("none", "{\"step\": 1, \"loss\"");
  MetricsReader none(path("none"), /*long_from=*/1);
  none.look();
  EXPECT_EQ(none.find("loss").size(), 0U);
}

TEST_F(Record, StepsThatWerePutTogetherInAnyOrderAreSorted) {
  add("m",
      "{\"step\": 5, \"loss\": 5.0}\n{\"step\": 2, \"loss\": 2.0}\n{\"step\": 3, \"loss\": 3.0}\n");
  MetricsReader reader(path("m"));
  reader.refresh();
  EXPECT_EQ(reader.find("loss").steps, (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(reader.find("loss").values, (std::vector<double>{2, 3, 5}));
}

Series waves(size_t count) {
  Series series;
  for (size_t i = 0; i < count; ++i) {
    series.steps.push_back(static_cast<int64_t>(3 * i));
    series.values.push_back(std::sin(0.37 * static_cast<double>(i)));
  }
  return series;
}

TEST(Downsample, KeepsTheExtremesAndTheEnds) {
  Series series = waves(10007);
  series.values[4321] = 50;
  series.values[777] = -60;
  const Points points = downsample(series, 0, 1 << 30, 100, 0);
  EXPECT_LE(points.steps.size(), 400U);
  EXPECT_GE(points.steps.size(), 200U);
  EXPECT_EQ(points.steps.front(), 0);
  EXPECT_EQ(points.steps.back(), series.steps.back());
  EXPECT_TRUE(std::is_sorted(points.steps.begin(), points.steps.end()));
  EXPECT_EQ(*std::max_element(points.values.begin(), points.values.end()), 50);
  EXPECT_EQ(*std::min_element(points.values.begin(), points.values.end()), -60);
  for (size_t i = 0; i < points.steps.size();
       ++i) {  // every point is an original point of the series
    EXPECT_EQ(points.values[i], series.values[static_cast<size_t>(points.steps[i] / 3)]);
  }
}

TEST(Downsample, AFewPointsStayAndARangeIsARange) {
  const Series series = waves(50);
  EXPECT_EQ(downsample(series, 0, 1000, 100, 0).values, series.values);
  const Points part = downsample(series, 10, 30, 100, 0);
  EXPECT_EQ(part.steps, (std::vector<int64_t>{12, 15, 18, 21, 24, 27, 30}));
  EXPECT_TRUE(downsample(series, 2000, 3000, 100, 0).steps.empty());
  EXPECT_TRUE(downsample({}, 0, 3000, 100, 0).steps.empty());
  EXPECT_EQ(downsample(series, 0, 1000, 1, 0).steps.size(), 4U);
}

TEST(Downsample, WhatIsNotFiniteInterruptsTheLine) {
  Series series = waves(1000);
  for (size_t i = 500; i < 700; ++i) {
    series.values[i] = std::nan("");
  }
  const Points points = downsample(series, 0, 3000, 20, 0);
  const auto nans = std::count_if(
      points.values.begin(), points.values.end(), [](double x) { return std::isnan(x); });
  EXPECT_GE(nans, 4);
  EXPECT_LT(nans, 20);
}

TEST(Downsample, SmoothsOverAllStepsWithoutBias) {
  EXPECT_EQ(smoothed({4, 4, 4}, 0.9), (std::vector<double>{4, 4, 4}));
  const std::vector<double> two = smoothed({1, std::nan(""), 3}, 0.5);
  EXPECT_DOUBLE_EQ(two[0], 1);
  EXPECT_TRUE(std::isnan(two[1]));
  EXPECT_DOUBLE_EQ(two[2], (0.25 * 1 + 0.5 * 3) / 0.75);
  // A range of a smoothed series equals that range of the complete smoothed series.
  const Series series = waves(100);
  const Points all = downsample(series, 0, 1000, 100, 0.8);
  const Points part = downsample(series, 90, 93, 100, 0.8);
  EXPECT_EQ(part.values.at(0), all.values.at(30));
}

TEST_F(Record, EventsAreThoseOfTheRunThatBeganLast) {
  add("events.jsonl",
      "{\"time\": 1, \"step\": 0, \"event\": \"began\", \"round\": 0}\n"
      "{\"time\": 2, \"step\": 9, \"event\": \"finished\"}\n"
      "{\"time\": 3, \"step\": 0, \"event\": \"began\", \"round\": 0}\n"
      "rubbish\n[1]\n{\"time\": 1}\n"
      "{\"time\": 4, \"step\": 5, \"event\": \"saved\"}\n"
      "{\"time\": 5, \"step\": 5, \"event\": \"began\", \"round\": 1}\n"
      "{\"time\": 6, \"st");
  const std::vector<Event> events = read_events(folder_.path());
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].time, 3);
  EXPECT_EQ(events[1].name, "saved");
  EXPECT_EQ(events[2].step, 5);
  EXPECT_TRUE(read_events(path("elsewhere")).empty());
}

TEST_F(Record, LinesThatAreNestedDeeplyAreSkipped) {
  const std::string nested = std::string(200000, '[') + std::string(200000, ']');
  add("run/metrics.jsonl",
      "{\"step\": 1, \"loss\": 1.5}\n{\"step\": 2, \"loss\": " + nested +
          "}\n{\"step\": 3, \"loss\": 1.5}\n");
  add("run/events.jsonl",
      "{\"step\": 0, \"event\": \"began\"}\n{\"event\": \"act\", \"a\": " + nested + "}\n");
  EXPECT_EQ(read_events(path("run")).size(), 1U);
  EXPECT_TRUE(read_events(path("run"), {"act"}).empty());
  EXPECT_EQ(summarize(path("run"), 0).step, 3);
  MetricsReader metrics(path("run/metrics.jsonl"));
  metrics.refresh();
  EXPECT_EQ(metrics.bad_lines(), 1);
}

TEST_F(Record, AConfigurationTellsWhatWasSetWhileTheRunWentOn) {
  add("run/config.yaml", "training:\n  learning_rate: 0.001\n  seed: 3\n");
  add("run/events.jsonl",
      "{\"step\": 0, \"event\": \"began\"}\n{\"step\": 5, \"event\": \"act\", \"act\": \"save\"}\n"
      "{\"step\": 57, \"event\": \"act\", \"act\": \"set\", \"learning_rate\": 0.01}\n");
  const auto values = configuration_of(path("run"));
  EXPECT_EQ(values.at("training.learning_rate"), "0.001, 0.01 after step 57");
  EXPECT_EQ(values.at("training.seed"), "3");
}

TEST_F(Record, ASummaryTellsHowARunEnded) {
  const std::string began =
      "{\"time\": 100, \"step\": 0, \"event\": \"began\", \"round\": 0, \"model\": \"m\", "
      "\"plan\": \"data 2\", \"ranks\": 2, \"steps\": 10}\n";
  const std::string line =
      "{\"step\": 6, \"loss\": 2.5, \"learning_rate\": 0.1, \"tokens_per_s\": 5, \"step_s\": 2}\n";
  for (const auto& [name, end, text] : std::vector<std::tuple<std::string, End, std::string>>{
           {"a",
            End::kFinished,
            "{\"time\": 200, \"step\": 10, \"event\": \"finished\", \"in_steps_s\": 80}\n"},
           {"b",
            End::kFailed,
            "{\"time\": 200, \"step\": 6, \"event\": \"failed\", \"error\": \"x\\ny\"}\n"},
           {"c",
            End::kStopped,
            "{\"time\": 200, \"step\": 6, \"event\": \"stopped\", \"by\": \"a signal\"}\n"},
           {"d", End::kKilled, ""}}) {
    add(name + "/events.jsonl", began + text);
    add(name + "/metrics.jsonl", line);
    const RunSummary run = summarize(path(name), 300);
    EXPECT_EQ(run.end, end) << name;
    EXPECT_EQ(run.model, "m");
    EXPECT_EQ(run.total_steps, 10);
    EXPECT_EQ(run.loss, 2.5);
    EXPECT_EQ(run.step, name == "a" ? 10 : 6);
  }
  EXPECT_DOUBLE_EQ(summarize(path("a"), 300).goodput.value(), 0.8);
  EXPECT_EQ(end_text(summarize(path("b"), 300)), "failed: x");
  EXPECT_EQ(find_runs(folder_.path()).size(), 4U);
  EXPECT_THROW(summarize(folder_.path(), 300), Error);
  EXPECT_THROW(find_runs(path("nowhere")), Error);
}

TEST_F(Record, GoodputCountsStepsThatWereKept) {
  add("metrics.jsonl", "");
  add("events.jsonl",
      "{\"time\": 0, \"step\": 0, \"event\": \"began\", \"round\": 0, \"steps\": 10}\n"
      "{\"time\": 20, \"step\": 4, \"event\": \"saved\", \"in_steps_s\": 16}\n"
      "{\"time\": 40, \"step\": 8, \"event\": \"failed\", \"in_steps_s\": 32}\n"
      "{\"time\": 60, \"step\": 4, \"event\": \"began\", \"round\": 1, \"steps\": 10}\n"
      "{\"time\": 100, \"step\": 10, \"event\": \"finished\", \"in_steps_s\": 24}\n");
  EXPECT_DOUBLE_EQ(summarize(folder_.path(), 500).goodput.value(), (16 + 24) / 100.0);
}

TEST_F(Record, RunsWithoutARecordAreComparedByTheirCurves) {
  add("a/metrics.jsonl", "{\"step\": 1, \"loss\": 2.5}\n");
  add("b/metrics.jsonl", "no line\n");
  const std::string text = comparison_text(compare_runs(path("a"), path("b"), 1000));
  EXPECT_NE(text.find("data: not recorded"), std::string::npos) << text;
  EXPECT_NE(text.find("no step has a loss in both runs"), std::string::npos) << text;
}

TEST_F(Record, ComparisonsNameWhatDiffers) {
  const auto run = [&](const std::string& name, const char* rate, double loss) {
    add(name + "/config.yaml",
        fmt::format("training:\n  output_dir: {}\n  learning_rate: {}\n  seed: 1\n", name, rate));
    add(name + "/metrics.jsonl",
        fmt::format("{{\"step\": 1, \"loss\": 3.0}}\n{{\"step\": 2, \"loss\": {}}}\n", loss));
    add(name + "/events.jsonl",
        fmt::format(
            "{{\"time\": 1, \"step\": 0, \"event\": \"began\", \"data\": {{\"hash\": \"{}\"}}, "
            "\"program\": {{\"version\": \"1\"}}}}\n",
            name));
  };
  run("a", "0.1", 2.0);
  run("b", "0.2", 2.5);
  const Comparison found = compare_runs(path("a"), path("b"), 10);
  ASSERT_EQ(found.configuration.size(), 1U);
  EXPECT_EQ(found.configuration[0].name, "training.learning_rate");
  EXPECT_EQ(found.configuration[0].second, "0.2");
  ASSERT_EQ(found.data.size(), 1U);
  EXPECT_TRUE(found.program.empty());
  EXPECT_EQ(found.first_other_loss, 2);
  EXPECT_EQ(found.common_losses, 2);
  const std::string text = comparison_text(found);
  EXPECT_NE(text.find("the first difference is at step 2"), std::string::npos) << text;
  add("b/events.jsonl",
      "{\"time\": 1, \"step\": 1, \"event\": \"saved\"}\n");  // the file has lost its first line
  EXPECT_EQ(compare_runs(path("a"), path("b"), 10).data.size(), 1U);
  const Comparison same = compare_runs(path("a"), path("a"), 10);
  EXPECT_FALSE(same.first_other_loss);
  EXPECT_EQ(to_json(same).at("configuration").size(), 0U);
  const std::string table = runs_table({found.first, found.second}, folder_.path());
  EXPECT_EQ(table.substr(0, 3), "run");
  EXPECT_NE(table.find("ended unexpectedly"), std::string::npos) << table;
}

}  // namespace record_test
}  // namespace lockstep::watch
