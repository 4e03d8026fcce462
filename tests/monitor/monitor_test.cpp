// Tests of Monitor: logging, rates, result files and trackers.
#include "monitor/monitor.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "monitor/trainer_state.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace monitor_test {

/// Run with a clock that the test sets.
struct TimedRun {
  TemporaryFolder folder;
  double now = 50;

  MonitorOptions options(int64_t logging_steps = 2, int64_t total = 6) const {
    return {
        .output_dir = folder.path() / "out",
        .logging_steps = logging_steps,
        .total_steps = total,
        .progress = Progress::Style::kSilent};
  }
  Clocks clocks() {
    return {.wall = [this] { return 1.7e9 + now; }, .steady = [this] { return now; }};
  }
  StepReport report(int64_t step) {
    now += 0.5;
    return {
        .step = step,
        .epoch = static_cast<double>(step) / 3,
        .loss = 10.0 - static_cast<double>(step),
        .learning_rate = 1e-3,
        .grad_norm = 0.5,
        .tokens = 100,
        .samples = 4,
        .flops = 1e9,
        .step_s = 0.5,
        .peak_memory_bytes = 1 << 20,
        .epoch_ends = step % 3 == 0};
  }
  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::string text = read_file(folder.path() / "out" / "metrics.jsonl");
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      lines.push_back(nlohmann::json::parse(text.substr(0, end)));
      text.erase(0, end + 1);
    }
    return lines;
  }
  nlohmann::json file(const char* name) const { return read_json(folder.path() / "out" / name); }
};

TEST(Monitor, LogsTheMeanSinceTheLastLine) {
  TimedRun run;
  Monitor monitor(run.options(), std::nullopt, run.clocks());
  EXPECT_FALSE(monitor.step(run.report(1)));
  EXPECT_TRUE(run.metrics().empty());
  EXPECT_TRUE(monitor.step(run.report(2)));
  monitor.step(run.report(3));
  monitor.step(run.report(4));
  const auto lines = run.metrics();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(
      lines[1],
      (nlohmann::json{
          {"step", 4},
          {"epoch", 4.0 / 3},
          {"loss", 6.5},
          {"learning_rate", 1e-3},
          {"grad_norm", 0.5},
          {"tokens", 400},
          {"tokens_per_s", 200.0},
          {"step_s", 0.5},
          {"peak_memory_bytes", 1 << 20}}));
}

TEST(Monitor, LogsTheShareOfThePeakWhereThatIsKnown) {
  TimedRun run;
  MonitorOptions options = run.options();
  options.peak_flops = 8e9;
  Monitor monitor(options, std::nullopt, run.clocks());
  monitor.step(run.report(1));
  monitor.step(run.report(2));
  EXPECT_EQ(run.metrics().at(0).at("peak_share"), 0.25);  // 2e9 operations in 1 s
}

TEST(Monitor, LogsTheShareOfTheRooflineWhereThatIsKnown) {
  TimedRun run;
  Monitor monitor(run.options(), std::nullopt, run.clocks());
  monitor.step(run.report(1));
  monitor.step(run.report(2));
  EXPECT_FALSE(run.metrics().at(0).contains("roofline_share"));
  monitor.set_roofline(0.125);
  monitor.step(run.report(3));
  monitor.step(run.report(4));
  EXPECT_EQ(run.metrics().at(1).at("roofline_share"), 0.25);  // steps take 0.5 s
}

TEST(Monitor, LogsByItsStrategy) {
  const auto logged = [](LoggingStrategy strategy, bool first, int64_t every) {
    TimedRun run;
    MonitorOptions options = run.options(every);
    options.logging_strategy = strategy;
    options.logging_first_step = first;
    Monitor monitor(options, std::nullopt, run.clocks());
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 6; ++step) {
      if (monitor.step(run.report(step))) {
        steps.push_back(step);
      }
    }
    return steps;
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(
      logged(LoggingStrategy::kSteps, false, 4), (Steps{4, 6}));  // the last step is always logged
  EXPECT_EQ(logged(LoggingStrategy::kSteps, true, 4), (Steps{1, 4, 6}));
  EXPECT_EQ(logged(LoggingStrategy::kEpoch, false, 1), (Steps{3, 6}));
  EXPECT_EQ(logged(LoggingStrategy::kNo, true, 1), (Steps{1}));
  EXPECT_EQ(logged(LoggingStrategy::kNo, false, 1), (Steps{}));
}

TEST(Monitor, WritesEvaluationsAndResults) {
  TimedRun run;
  Monitor monitor(run.options(), std::nullopt, run.clocks());
  monitor.step(run.report(1));
  monitor.evaluation(
      {.step = 1,
       .epoch = 0.5,
       .loss = 2.0,
       .metrics = {{"perplexity", 7.5}, {"token_accuracy", 0.25}},
       .samples = 8,
       .batches = 2,
       .runtime_s = 4});
  const auto lines = run.metrics();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(
      lines[0],
      (nlohmann::json{
          {"step", 1},
          {"epoch", 0.5},
          {"eval_loss", 2.0},
          {"eval_perplexity", 7.5},
          {"eval_token_accuracy", 0.25},
          {"eval_runtime", 4.0},
          {"eval_samples_per_second", 2.0},
          {"eval_steps_per_second", 0.5}}));
  EXPECT_EQ(run.file("eval_results.json")["eval_loss"], 2.0);

  run.now += 3.5;  // duration of the evaluation
  monitor.step(run.report(2));
  monitor.finish();
  monitor.finish();  // a second call has no effect
  EXPECT_EQ(
      run.file("train_results.json"),
      (nlohmann::json{
          {"epoch", 2.0 / 3},
          {"total_flos", 2e9},
          {"train_loss", 8.5},
          {"train_runtime", 4.5},
          {"train_samples_per_second", 8 / 4.5},
          {"train_steps_per_second", 2 / 4.5}}));
  EXPECT_EQ(run.file("all_results.json")["eval_loss"], 2.0);
  EXPECT_EQ(run.file("all_results.json")["train_loss"], 8.5);
  const nlohmann::json state = run.file("trainer_state.json");
  EXPECT_EQ(state["global_step"], 2);
  EXPECT_EQ(state["max_steps"], 6);
  ASSERT_EQ(state["log_history"].size(), 3U);  // evaluation, training, summary
  EXPECT_EQ(state["log_history"][1]["loss"], 8.5);
  EXPECT_EQ(state["log_history"][2]["train_runtime"], 4.5);
}

TEST(Monitor, ResumesAsIfNothingHadHappened) {
  TimedRun once;
  {
    Monitor monitor(once.options(), std::nullopt, once.clocks());
    for (int64_t step = 1; step <= 6; ++step) {
      monitor.step(once.report(step));
    }
  }
  TimedRun twice;
  std::string checkpoint;
  {
    Monitor monitor(twice.options(), std::nullopt, twice.clocks());
    for (int64_t step = 1; step <= 5; ++step) {  // killed after step 5, with a checkpoint of step 2
      monitor.step(twice.report(step));
      if (step == 2) {
        checkpoint = to_json(monitor.state());
      }
    }
  }
  Monitor monitor(twice.options(), parse_trainer_state(checkpoint, "checkpoint-2"), twice.clocks());
  EXPECT_EQ(twice.metrics().size(), 1U);
  EXPECT_EQ(monitor.state().log_history.size(), 1U);
  for (int64_t step = 3; step <= 6; ++step) {
    monitor.step(twice.report(step));
  }
  EXPECT_EQ(twice.metrics(), once.metrics());
  EXPECT_EQ(monitor.state().num_input_tokens_seen, 600);
  EXPECT_EQ(monitor.state().total_flos, 6e9);
}

TEST(Monitor, TellsOtherSinks) {
  struct Counter : MetricsSink {
    explicit Counter(int& count) : count_(count) {}
    void log(const Record& record) override {
      ++count_;
      EXPECT_NE(record.find("loss"), nullptr);
      EXPECT_EQ(record.find("no such"), nullptr);
    }
    int& count_;
  };
  TimedRun run;
  int count = 0;
  Monitor monitor(run.options(1), std::nullopt, run.clocks());
  monitor.add_sink(std::make_unique<Counter>(count));
  monitor.step(run.report(1));
  monitor.step(run.report(2));
  EXPECT_EQ(count, 2);
}

TEST(Monitor, KeepsJsonWholeWhereALossIsNone) {
  TimedRun run;
  Monitor monitor(run.options(1), std::nullopt, run.clocks());
  StepReport report = run.report(1);
  report.loss = std::nan("");
  monitor.step(report);
  monitor.evaluation({.step = 1, .loss = 1e6});  // its perplexity overflows
  monitor.finish();
  EXPECT_TRUE(run.metrics()[0]["loss"].is_null());
  EXPECT_TRUE(run.metrics()[1]["eval_perplexity"].is_null());
  EXPECT_TRUE(run.file("trainer_state.json")["log_history"][0]["loss"].is_null());
}

TEST(TrainerState, ReadsBackWhatItWrites) {
  TrainerState state;
  state.epoch = 1.0 / 3;
  state.global_step = 12;
  state.max_steps = 100;
  state.num_train_epochs = 3;
  state.total_flos = 1.5e18;
  state.num_input_tokens_seen = int64_t{1} << 60;
  state.best_metric = 0.1;
  state.best_global_step = 10;
  state.best_model_checkpoint = "out/checkpoint-10";
  state.log_history = {R"({"epoch":0.1,"loss":2.0,"step":1})"};
  const std::string text = to_json(state);
  EXPECT_TRUE(text.starts_with(
      "{\n  \"best_global_step\": 10,\n  \"best_metric\": 0.1,\n  \"best_model_checkpoint\": "
      "\"out/checkpoint-10\",\n  \"epoch\": 0.3333333333333333,\n"))
      << text;
  EXPECT_NE(text.find("\"num_train_epochs\": 3,"), std::string::npos);
  EXPECT_NE(text.find("\"is_world_process_zero\": true,"), std::string::npos);
  EXPECT_NE(text.find("\"trial_params\": null\n}"), std::string::npos);
  const TrainerState read = parse_trainer_state(text, "x");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.epoch, state.epoch);
  EXPECT_EQ(read.log_history, state.log_history);
}

TEST(TrainerState, ALongHistoryIsThinned) {
  std::vector<std::string> history;
  const auto line = [](int64_t step, const char* value) {
    return fmt::format(R"({{"{}":2.0,"step":{}}})", value, step);
  };
  const auto add = [&](int64_t step) {
    add_to_history(history, line(step, "loss"));
    if (step % 100 == 0) {
      add_to_history(history, line(step, "eval_loss"));
    }
  };
  constexpr int64_t kSteps = 100'000, kHalf = 40'000;
  for (int64_t step = 1; step <= kHalf; ++step) {
    add(step);
  }
  // A resume continues with the same lines.
  TrainerState state;
  state.log_history = history;
  history = parse_trainer_state(to_json(state), "x").log_history;
  EXPECT_EQ(history, state.log_history);
  for (int64_t step = kHalf + 1; step <= kSteps; ++step) {
    add(step);
    ASSERT_LE(history.size(), kMostHistory);
  }
  EXPECT_GT(history.size(), kMostHistory / 2 - 1);
  EXPECT_EQ(history.front(), line(1, "loss"));
  EXPECT_EQ(history.back(), line(kSteps, "eval_loss"));
  const auto evaluations = std::ranges::count_if(
      history, [](const std::string& each) { return each.find("eval_loss") != each.npos; });
  EXPECT_GT(evaluations, 100);
}

TEST(TrainerState, ReadsHuggingFacesAndRefusesWhatIsNone) {
  const TrainerState state = parse_trainer_state(
      R"({"best_metric": null, "epoch": 2.0, "eval_steps": 500, "global_step": 40, "log_history": [
          {"epoch": 1.0, "grad_norm": 0.3, "learning_rate": 2e-5, "loss": 3.1, "step": 20}],
          "logging_steps": 20, "stateful_callbacks": {"TrainerControl": {}}, "train_batch_size": 8})",
      "trainer_state.json");
  EXPECT_EQ(state.global_step, 40);
  EXPECT_FALSE(state.best_metric);
  EXPECT_EQ(state.log_history.size(), 1U);
  for (const char* const text :
       {"", "[]", "3", R"({"global_step": "x"})", R"({"log_history": 3, "epoch": []})"}) {
    try {
      parse_trainer_state(text, "checkpoint-3/trainer_state.json");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
      EXPECT_NE(error.message().find("checkpoint-3/trainer_state.json"), std::string::npos);
    }
  }
}

/// Sink that behaves like a file on a full disk.
class FullDisk : public MetricsSink {
 public:
  explicit FullDisk(int& calls) : calls_(calls) {}
  void log(const Record& /*record*/) override {
    ++calls_;
    throw Error(ErrorKind::kCheckpoint, "cannot write it: No space left on device");
  }

 private:
  int& calls_;
};

TEST(Monitor, AFullDiskCostsMetricsAndNotTheRun) {
  TimedRun run;
  Monitor monitor(run.options(1), std::nullopt, run.clocks());
  int calls = 0;
  monitor.add_sink(std::make_unique<FullDisk>(calls));
  testing::internal::CaptureStderr();
  monitor.step(run.report(1));
  monitor.step(run.report(2));
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(told.find("No space left on device"), told.rfind("No space left on device")) << told;
  EXPECT_NE(told.find("training continues without"), std::string::npos) << told;
  EXPECT_EQ(run.metrics().size(), 2U);
  // The folder of the results no longer exists.
  std::filesystem::remove_all(run.folder.path() / "out");
  write_file_atomically(run.folder.path() / "out", "a file");
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(monitor.evaluation({.step = 2, .loss = 1}));
  EXPECT_NO_THROW(monitor.finish());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("without the results"), std::string::npos);
}

}  // namespace monitor_test
}  // namespace lockstep::monitor
