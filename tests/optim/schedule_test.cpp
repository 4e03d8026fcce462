// Learning-rate schedules: values, state and rejected arguments.
#include "optim/schedule.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"

namespace lockstep::optim {
namespace schedule_test {

// transformers' values; tests/parity/test_schedules.py generates and verifies them.
nlohmann::json golden() {
  return read_json(
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests" / "optim" / "schedule_golden.json");
}

ScheduleOptions options_of(const std::string& type, const std::string& kwargs, double warmup = 0) {
  return {
      .lr_scheduler_type = type,
      .lr_scheduler_kwargs = kwargs,
      .learning_rate = 1e-3,
      .total_steps = 100,
      .warmup_steps = warmup};
}

std::string problem_of(const ScheduleOptions& options) {
  try {
    make_schedule(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.message();
  }
  return "";
}

void expect_close(double ours, double theirs, const std::string& what) {
  EXPECT_NEAR(ours, theirs, 1e-12 * std::abs(theirs) + 1e-20) << what;
}

TEST(Schedule, EqualsTransformersAtEveryStep) {
  const nlohmann::json table = golden();
  ASSERT_GT(table["schedules"].size(), 20U);
  for (const auto& entry : table["schedules"]) {
    const auto schedule = make_schedule(
        {.lr_scheduler_type = entry["type"],
         .lr_scheduler_kwargs = entry["kwargs"].dump(),
         .learning_rate = table["learning_rate"],
         .total_steps = table["total_steps"],
         .warmup_steps = entry["warmup"]});
    EXPECT_FALSE(schedule->wants_metric());
    int64_t step = 0;
    for (const double rate : entry["rates"]) {
      expect_close(
          schedule->learning_rate(step),
          rate,
          fmt::format("{} {} step {}", entry["type"].dump(), entry["kwargs"].dump(), step));
      ++step;
    }
  }
}

TEST(Schedule, FollowsAMetricAsTransformersDoesAndResumesAtAnyPoint) {
  const nlohmann::json table = golden();
  for (const auto& entry : table["plateaus"]) {
    const ScheduleOptions options{
        .lr_scheduler_type = entry["type"],
        .lr_scheduler_kwargs = entry["kwargs"].dump(),
        .learning_rate = table["learning_rate"],
        .total_steps = table["total_steps"]};
    auto schedule = make_schedule(options);
    EXPECT_TRUE(schedule->wants_metric());
    EXPECT_EQ(schedule->learning_rate(0), options.learning_rate);
    for (size_t i = 0; i < table["metrics"].size(); ++i) {
      // A checkpoint before every metric, serialized as text as in the file.
      const std::string saved = schedule->state().dump();
      schedule = make_schedule(options);
      schedule->load_state(nlohmann::json::parse(saved));
      schedule->observe(table["metrics"][i]);
      expect_close(
          schedule->learning_rate(static_cast<int64_t>(i)),
          entry["rates"][i],
          fmt::format("{} metric {}", entry["kwargs"].dump(), i));
    }
  }
}

TEST(Schedule, CountsNothingButSteps) {
  // Queries in any order give the same result: there is no hidden state that a resume could lose.
  const auto schedule = make_schedule(options_of("cosine", "", 10));
  const double late = schedule->learning_rate(70);
  EXPECT_EQ(schedule->learning_rate(0), 0);
  EXPECT_EQ(schedule->learning_rate(10), 1e-3);
  EXPECT_EQ(schedule->learning_rate(70), late);
  EXPECT_EQ(schedule->state(), nlohmann::json::object());
}

TEST(Schedule, WarmsUpBySteps_OrByAShareOfAll) {
  EXPECT_EQ(warmup_steps_of(0, 0, 1000), 0);
  EXPECT_EQ(warmup_steps_of(7, 0.5, 1000), 7);
  EXPECT_EQ(warmup_steps_of(1, 0, 1000), 1);
  EXPECT_EQ(warmup_steps_of(0.0301, 0, 1000), 31);
  EXPECT_EQ(warmup_steps_of(0, 0.1, 1001), 101);
  EXPECT_EQ(warmup_steps_of(0.1, 0, 0), 0);
}

TEST(Schedule, TellsEveryProblemAtOnce) {
  EXPECT_EQ(
      problem_of(options_of("cosin", "")),
      "training.lr_scheduler_type is 'cosin', which is not one of constant, constant_with_warmup, "
      "cosine, cosine_warmup_with_min_lr, cosine_with_min_lr, cosine_with_restarts, greedy, "
      "inverse_sqrt, linear, polynomial, reduce_lr_on_plateau, warmup_stable_decay. Did you mean "
      "'cosine'?");
  EXPECT_EQ(
      problem_of(options_of("cosine", R"({"num_cycle": 2})")),
      "the learning-rate schedule 'cosine': unknown argument num_cycle (its arguments are "
      "num_cycles). "
      "Did you mean 'num_cycles'?");
  EXPECT_EQ(
      problem_of(options_of("linear", R"({"x": 2})")),
      "the learning-rate schedule 'linear': unknown argument x (it has no arguments).");
  EXPECT_EQ(
      problem_of(options_of("cosine_with_min_lr", R"({"num_cycles": "two"})")),
      "the learning-rate schedule 'cosine_with_min_lr': num_cycles is \"two\"; it must be a "
      "number; "
      "one of min_lr and min_lr_rate is required");
  EXPECT_EQ(
      problem_of(options_of("cosine_with_min_lr", R"({"min_lr": 1e-5, "min_lr_rate": 0.1})")),
      "the learning-rate schedule 'cosine_with_min_lr': min_lr and min_lr_rate are both set");
  EXPECT_EQ(
      problem_of(options_of("warmup_stable_decay", R"({"decay_type": "sqrt"})")),
      "the learning-rate schedule 'warmup_stable_decay': num_decay_steps is missing; decay_type is "
      "\"sqrt\"; it must be one of linear, cosine, 1-sqrt");
  EXPECT_EQ(
      problem_of(options_of("warmup_stable_decay", R"({"num_decay_steps": 95})", 10)),
      "the learning-rate schedule 'warmup_stable_decay': num_decay_steps is 95; with a warm-up of "
      "10 it exceeds the run's 100 steps");
  EXPECT_NE(problem_of(options_of("polynomial", R"({"lr_end": 0.1})")), "");
  EXPECT_NE(problem_of(options_of("inverse_sqrt", R"({"timescale": 0})")), "");
  EXPECT_NE(problem_of(options_of("inverse_sqrt", R"({"timescale": 1.5})")), "");
  EXPECT_NE(problem_of(options_of("reduce_lr_on_plateau", R"({"factor": 1})")), "");
  EXPECT_NE(problem_of(options_of("linear", "[1]")), "");
  EXPECT_NE(problem_of(options_of("linear", "{")), "");
  EXPECT_NE(problem_of(options_of("linear", "", -1)), "");
  EXPECT_NE(problem_of(options_of("linear", "", std::nan(""))), "");
  EXPECT_EQ(problem_of(options_of("linear", "null")), "");
}

TEST(Schedule, RefusesTheStateOfAnother) {
  const auto schedule = make_schedule(options_of("reduce_lr_on_plateau", ""));
  try {
    schedule->load_state(nlohmann::json::object());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    EXPECT_NE(error.message().find("reduce_lr_on_plateau"), std::string::npos);
  }
}

TEST(Schedule, BearsARunOfNoSteps) {
  for (const std::string& name : schedule_names()) {
    const std::string kwargs = name.ends_with("min_lr")        ? R"({"min_lr": 0})"
                               : name == "warmup_stable_decay" ? R"({"num_decay_steps": 0})"
                                                               : "";
    ScheduleOptions options = options_of(name, kwargs);
    options.total_steps = 0;
    EXPECT_TRUE(std::isfinite(make_schedule(options)->learning_rate(0))) << name;
  }
}

}  // namespace schedule_test
}  // namespace lockstep::optim
