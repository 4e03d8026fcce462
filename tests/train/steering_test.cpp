#include "train/steering.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

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
  const Acts others = Acts::from_numbers(Acts{.log_level = 0, .traced_steps = 100}.numbers());
  EXPECT_EQ(others.log_level, 0);
  EXPECT_EQ(others.traced_steps, 100);
}

/// A job of which the schedule alone is looked at.
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
  for (int i = 0; i < 11; ++i) {  // its patience is 10: what it had observed it still knows
    EXPECT_EQ(job.schedule->learning_rate(3), 0.02);
    job.schedule->observe(2.0);
  }
  EXPECT_DOUBLE_EQ(job.schedule->learning_rate(3), 0.002);
}

TEST(Steering, ACheckpointKeepsWhatWasSetUnlessTheConfigurationIsAnother) {
  const World world{.store = {}, .communicator = comm::Communicator::alone()};
  Job job;
  prepare(job, "constant");
  job.rate_acts = {{4, 0.5, 0.1}, {8, 0.25, 0.1}};
  const nlohmann::json kept = nlohmann::json::parse(acts_json(job).dump());
  Job same;
  prepare(same, "constant");
  restore_acts(same, kept, world);
  EXPECT_EQ(same.schedule->learning_rate(50), 0.25);
  EXPECT_EQ(acts_json(same), acts_json(job));
  Job other;
  prepare(other, "constant");
  other.config.training.learning_rate = other.schedule_options.learning_rate = 0.7;
  other.schedule = optim::make_schedule(other.schedule_options);
  restore_acts(other, kept, world);
  EXPECT_EQ(other.schedule->learning_rate(50), 0.7);
}

}  // namespace steering_test
}  // namespace lockstep::train
