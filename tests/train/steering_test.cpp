// Tests of controlling a run with lockstep ctl.
#include "train/steering.h"

#include <chrono>
#include <cmath>
#include <future>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "temporary_folder.h"
#include "train/committed_saves.h"
#include "watch/record/run.h"

namespace lockstep::train {
namespace steering_test {

TEST(Steering, ActsSurviveTheMessageInWhichRanksAgree) {
  for (const bool save : {false, true}) {
    for (const bool stop : {false, true}) {
      for (const bool evaluate : {false, true}) {
        const Acts acts =
            Acts::from_numbers(Acts{.save = save, .stop = stop, .evaluate = evaluate}.numbers());
        EXPECT_EQ(acts.save, save);
        EXPECT_EQ(acts.stop, stop);
        EXPECT_EQ(acts.evaluate, evaluate);
        EXPECT_FALSE(acts.log_level || acts.learning_rate);
        EXPECT_EQ(acts.traced_steps, 0);
      }
    }
  }
  for (const double rate : {0.0, 1e-300, 0.1, std::nextafter(1e-4, 1.0)}) {
    EXPECT_EQ(Acts::from_numbers(Acts{.learning_rate = rate}.numbers()).learning_rate, rate);
  }
  const Acts others = Acts::from_numbers(
      Acts{.log_level = 0, .traced_steps = 100, .logging_steps = int64_t{1} << 40}.numbers());
  EXPECT_EQ(others.logging_steps, int64_t{1} << 40);
  EXPECT_EQ(others.log_level, 0);
  EXPECT_EQ(others.traced_steps, 100);
}

/// Sets up a job that only has a schedule.
void prepare(Job& job, const std::string& type) {
  job.config.training.learning_rate = 0.1;
  job.schedule_options = {
      .lr_scheduler_type = type, .learning_rate = 0.1, .total_steps = 100, .warmup_steps = 10};
  job.schedule = optim::make_schedule(job.schedule_options);
}

TEST(Steering, AScheduleGoesOnAsIfItHadBeenConfiguredSo) {
  for (const char* const type : {"linear", "cosine", "polynomial", "constant_with_warmup"}) {
    Job job;
    prepare(job, type);
    auto configured = job.schedule_options;
    configured.learning_rate = 0.03;
    const auto expected = optim::make_schedule(configured);
    set_learning_rate(job, 0.03);
    for (const int64_t step : {0, 5, 10, 57, 99}) {
      EXPECT_EQ(job.schedule->learning_rate(step), expected->learning_rate(step)) << type;
    }
  }
}

TEST(Steering, AScheduleThatLowersItsRateLowersTheOneThatWasSet) {
  Job job;
  prepare(job, "reduce_lr_on_plateau");
  job.schedule->observe(1.0);
  set_learning_rate(job, 0.02);
  EXPECT_EQ(job.schedule->learning_rate(3), 0.02);
  for (int i = 0; i < 11; ++i) {  // its patience is 10: previous observations still count
    EXPECT_EQ(job.schedule->learning_rate(3), 0.02);
    job.schedule->observe(2.0);
  }
  EXPECT_DOUBLE_EQ(job.schedule->learning_rate(3), 0.002);
}

TEST(Steering, ACheckpointKeepsWhatWasSetUnlessTheConfigurationIsAnother) {
  const RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  Job job;
  prepare(job, "constant");
  job.rate_acts = {{4, 0.5, 0.1}, {8, 0.25, 0.1}};
  const nlohmann::json kept = nlohmann::json::parse(acts_json(job).dump());
  Job same;
  prepare(same, "constant");
  restore_acts(same, kept, rank_context);
  EXPECT_EQ(same.schedule->learning_rate(50), 0.25);
  EXPECT_EQ(acts_json(same), acts_json(job));
  Job other;
  prepare(other, "constant");
  other.config.training.learning_rate = other.schedule_options.learning_rate = 0.7;
  other.schedule = optim::make_schedule(other.schedule_options);
  restore_acts(other, kept, rank_context);
  EXPECT_EQ(other.schedule->learning_rate(50), 0.7);
}

/// A run that listens in its folder, and its clients; each waits in a separate thread.
struct Steered {
  TemporaryFolder folder;
  RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  Job job;

  explicit Steered(bool listens = true) {
    prepare(job, "constant");
    job.config.training.output_dir = folder.path().string();
    job.config.monitor.control = listens;
    job.length.total_steps = 100;
    job.progress.step = 7;
    job.monitor = std::make_unique<monitor::Monitor>(
        monitor::MonitorOptions{
            .output_dir = folder.path(), .progress = monitor::Progress::Style::kSilent},
        std::nullopt);
  }
  nlohmann::json ask(const nlohmann::ordered_json& request) const {
    return watch::ask_run(folder.path(), request);
  }
  std::vector<nlohmann::json> acts() const {
    std::vector<nlohmann::json> found;
    for (const watch::Event& event : watch::read_events(folder.path())) {
      if (event.name == "act") {
        found.push_back(event.fields);
      }
    }
    return found;
  }
};

TEST(Steering, StatusIsWhatWasPublishedLast) {
  Steered run;
  Steering steering(run.job, run.rank_context);
  EXPECT_EQ(run.ask({{"act", "status"}}).at("step"), 7);
  EXPECT_EQ(run.ask({{"act", "status"}}).at("steps"), 100);
  EXPECT_FALSE(run.ask({{"act", "status"}}).contains("loss")) << "no step yet";
  run.job.progress.step = 8;
  run.job.monitor->step({.step = 8, .loss = 2.5, .learning_rate = 0.1, .step_s = 1});
  steering.publish();
  EXPECT_EQ(run.ask({{"act", "status"}}).at("step"), 8);
  EXPECT_EQ(run.ask({{"act", "status"}}).at("loss"), 2.5);
  EXPECT_EQ(run.ask({{"act", "status"}}).at("ranks"), 1);
}

/// Sends a request, executes it between two steps and returns the reply.
nlohmann::json ask_and_step(
    Steered& run, Steering& steering, const nlohmann::ordered_json& request, bool saved = true) {
  std::future<nlohmann::json> answer =
      std::async(std::launch::async, [&] { return run.ask(request); });
  Acts acts;  // empty if the request is rejected immediately
  while (acts.numbers() == Acts{}.numbers() &&
         answer.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    acts = steering.take();
  }
  steering.begin_step(acts);
  ++run.job.progress.step;
  steering.end_step(saved, /*in_background=*/false);
  return answer.get();
}

TEST(Steering, ActsAreAnsweredBehindTheStepAndRecorded) {
  Steered run;
  Steering steering(run.job, run.rank_context);
  EXPECT_EQ(steering.take().numbers(), Acts{}.numbers());
  EXPECT_EQ(ask_and_step(run, steering, {{"act", "save"}}).at("text"), "saved checkpoint-8");
  EXPECT_EQ(ask_and_step(run, steering, {{"act", "save"}}, false).at("ok"), false);
  EXPECT_EQ(
      ask_and_step(run, steering, {{"act", "stop"}}).at("text"), "saved checkpoint-10 and stopped");
  EXPECT_EQ(
      ask_and_step(run, steering, {{"act", "log"}, {"level", "info"}}).at("text"), "since step 11");
  EXPECT_EQ(ask_and_step(run, steering, {{"act", "trace"}, {"steps", 3}}).at("ok"), true);
  EXPECT_EQ(
      ask_and_step(run, steering, {{"act", "set"}, {"learning_rate", 0.25}, {"force", true}})
          .at("text"),
      "learning_rate=0.25 from step 13 on");
  EXPECT_EQ(run.job.schedule->learning_rate(50), 0.25);
  ASSERT_EQ(run.job.rate_acts.size(), 1U);
  EXPECT_EQ(run.job.rate_acts[0].step, 12);
  EXPECT_EQ(run.job.rate_acts[0].configured, 0.1);
  std::vector<std::string> names;
  for (const nlohmann::json& act : run.acts()) {
    names.push_back(act.at("act"));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"save", "save", "stop", "log", "trace", "set"}));
  EXPECT_EQ(run.acts().back().at("learning_rate"), 0.25);
  EXPECT_EQ(run.acts().back().at("step"), 12);
}

TEST(Steering, ASaveIsAnsweredAndRecordedAfterItsCommit) {
  Steered run;
  run.job.saver = std::make_unique<checkpoint::AsyncSaver>(comm::Communicator::alone());
  Steering steering(run.job, run.rank_context);
  CommittedSaves saves(run.job, steering);
  std::promise<void> gate;
  std::future<nlohmann::json> answer =
      std::async(std::launch::async, [&] { return run.ask({{"act", "save"}}); });
  Acts acts;
  while (!acts.save) {
    acts = steering.take();
  }
  steering.begin_step(acts);
  run.job.progress.step = 8;
  run.job.monitor->step({.step = 8, .loss = 2.5, .step_s = 2});
  run.job.saver->save(
      run.folder.path() / "checkpoint-8", {}, "{}", {}, {}, [&] { gate.get_future().wait(); });
  saves.end_save(0.5, /*goes_on=*/true);
  steering.end_step(true, saves.is_saving());
  saves.poll();
  run.job.progress.step = 9;
  run.job.monitor->step({.step = 9, .loss = 2.5, .step_s = 2});
  steering.end_step(false, saves.is_saving());
  saves.poll();
  const auto saved = [&] { return watch::read_events(run.folder.path(), {"saved"}); };
  EXPECT_TRUE(saved().empty());
  EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  gate.set_value();
  saves.wait();
  EXPECT_EQ(answer.get().at("text"), "saved checkpoint-8");
  ASSERT_EQ(saved().size(), 1U);
  EXPECT_EQ(saved()[0].step, 8);
  EXPECT_EQ(saved()[0].fields.at("in_steps_s"), 2);  // what the checkpoint holds
  EXPECT_EQ(saved()[0].fields.at("in_background"), true);
}

TEST(Steering, WhatARunCannotDoIsRefusedWithWhatItTakes) {
  Steered run;
  Steering steering(run.job, run.rank_context);
  const auto refused = [&](const nlohmann::ordered_json& request) {
    const nlohmann::json answer = ask_and_step(run, steering, request);
    EXPECT_EQ(answer.at("ok"), false) << request;
    return answer.at("text").get<std::string>();
  };
  EXPECT_NE(refused({{"act", "eval"}}).find("data.validation=FILE"), std::string::npos);
  EXPECT_NE(refused({{"act", "set"}, {"learning_rate", 0.5}}).find("--force"), std::string::npos);
  EXPECT_NE(refused({{"act", "trace"}, {"steps", 0}}).find("1 to 100"), std::string::npos);
  EXPECT_NE(refused({{"act", "log"}, {"level", "loud"}}).find("debug, info"), std::string::npos);
  run.job.config.task.type = "unlearning";
  EXPECT_NE(refused({{"act", "eval"}}).find("unlearning.data_dir"), std::string::npos);
  EXPECT_TRUE(run.acts().empty());
  EXPECT_EQ(run.job.schedule->learning_rate(50), 0.1);
}

TEST(Steering, ARunThatMayNotListenRunsAllTheSame) {
  Steered run(/*listens=*/false);
  Steering steering(run.job, run.rank_context);
  EXPECT_FALSE(std::filesystem::exists(run.folder.path() / watch::kControlName));
  EXPECT_EQ(steering.take().numbers(), Acts{}.numbers());
  steering.publish();
  Steered elsewhere;
  elsewhere.job.config.training.output_dir = (elsewhere.folder.path() / "none").string();
  ::testing::internal::CaptureStderr();
  Steering deaf(elsewhere.job, elsewhere.rank_context);
  EXPECT_NE(
      ::testing::internal::GetCapturedStderr().find("cannot be controlled"), std::string::npos);
  EXPECT_EQ(deaf.take().numbers(), Acts{}.numbers());
}

/// The run was killed at step 60; its last checkpoint is from step 50. The learning rate changes
/// are repeated.
TEST(Steering, AResumedRunActsAgainAtTheSameSteps) {
  Steered run;
  const auto set = [&](int64_t step, double rate, double configured) {
    run.job.monitor->step({.step = step, .step_s = 1});
    run.job.monitor->event(
        "act",
        {{"act", "set"}, {"step", step}, {"learning_rate", rate}, {"configured", configured}});
  };
  set(40, 0.4, 0.1);  // contained in the checkpoint
  set(50, 0.5, 0.1);
  run.job.monitor->event("act", {{"act", "save"}});
  set(57, 0.7, 0.1);
  set(58, 0.8, 0.3);  // from another configuration
  Steered resumed;
  resumed.job.config.training.output_dir = run.folder.path().string();
  resumed.job.progress.step = 50;
  read_acts_to_come(resumed.job, resumed.rank_context);
  ASSERT_EQ(resumed.job.acts_to_come.size(), 2U);
  resumed.job.config.monitor.control = false;
  Steering steering(resumed.job, resumed.rank_context);
  const auto rate_at = [&](int64_t step) {
    resumed.job.progress.step = step;
    steering.begin_step({});
    return resumed.job.schedule->learning_rate(step);
  };
  EXPECT_EQ(rate_at(50), 0.5);
  EXPECT_EQ(rate_at(56), 0.5);
  EXPECT_EQ(rate_at(57), 0.7);
  EXPECT_EQ(rate_at(58), 0.7);
  EXPECT_EQ(resumed.job.rate_acts.size(), 2U);
  EXPECT_TRUE(resumed.job.acts_to_come.empty());
}

}  // namespace steering_test
}  // namespace lockstep::train
