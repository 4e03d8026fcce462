// Learning-rate schedule that raises the rate while a metric improves.
#include "optim/greedy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::optim {
namespace {

/// Settings with the names and defaults of GreedyLR.
struct GreedySettings {
  bool lower_is_better = true;
  bool relative = false;
  double factor = 0.95;
  int64_t patience = 10;
  double threshold = 1e-6;
  int64_t cooldown = 0;  // observations that do not count after a reduction
  int64_t warmup = 0;    // observations that do not count after an increase
  double min_lr = 1e-3;
  double max_lr = 1;
  double eps = 1e-8;
  bool smooth = false;  // use the mean of the last window_size metrics
  int64_t window_size = 50;
  int64_t reset_start = 500;  // reductions at min_lr before the schedule starts again
};

/// State that checkpoints contain, with the names of GreedyLR.
struct GreedyState {
  double learning_rate = 0;
  double best = 0;
  int64_t num_bad_epochs = 0, num_good_epochs = 0;  // observations in a row
  int64_t cooldown_counter = 0, warmup_counter = 0;
  int64_t reset_start = 0;
  std::deque<double> window{};  // metrics to smooth
};

class GreedySchedule : public Schedule {
 public:
  GreedySchedule(double learning_rate, const GreedySettings& settings)
      : settings_(settings),
        first_rate_(learning_rate) {
    reset();
  }

  double learning_rate(int64_t) const override { return now_.learning_rate; }
  bool wants_metric() const override { return true; }

  void observe(double metric) override {
    const double value = settings_.smooth ? smoothed(metric) : metric;
    int64_t& waiting = now_.cooldown_counter > 0 ? now_.cooldown_counter : now_.warmup_counter;
    if (waiting > 0) {
      --waiting;
      now_.num_bad_epochs = now_.num_good_epochs = 0;
      return;
    }
    if (is_better(value)) {
      now_.best = value;
      now_.num_bad_epochs = 0;
      ++now_.num_good_epochs;
    } else {
      ++now_.num_bad_epochs;
      now_.num_good_epochs = 0;
    }
    if (now_.num_good_epochs > settings_.patience) {
      increase();
    } else if (now_.num_bad_epochs > settings_.patience) {
      reduce();
    }
  }

  nlohmann::json state() const override {
    nlohmann::json state{
        {"learning_rate", now_.learning_rate},
        {"num_bad_epochs", now_.num_bad_epochs},
        {"num_good_epochs", now_.num_good_epochs},
        {"cooldown_counter", now_.cooldown_counter},
        {"warmup_counter", now_.warmup_counter},
        {"reset_start", now_.reset_start},
        {"window", now_.window}};
    // Before the first observation, the value is infinite, which JSON cannot represent.
    state["best"] = std::isfinite(now_.best) ? nlohmann::json(now_.best) : nlohmann::json();
    return state;
  }

  void load_state(const nlohmann::json& state) override {
    try {
      GreedyState read = now_;
      state.at("learning_rate").get_to(read.learning_rate);
      state.at("num_bad_epochs").get_to(read.num_bad_epochs);
      state.at("num_good_epochs").get_to(read.num_good_epochs);
      state.at("cooldown_counter").get_to(read.cooldown_counter);
      state.at("warmup_counter").get_to(read.warmup_counter);
      state.at("reset_start").get_to(read.reset_start);
      state.at("window").get_to(read.window);
      if (!state.at("best").is_null()) {
        state.at("best").get_to(read.best);
      }
      now_ = std::move(read);
    } catch (const nlohmann::json::exception& error) {
      throw Error(
          ErrorKind::kCheckpoint,
          fmt::format("the saved state of greedy is invalid: {}", error.what()),
          "resume with the lr_scheduler_type with which the checkpoint was written");
    }
  }

 private:
  void reset() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    now_ = {
        .learning_rate = first_rate_,
        .best = settings_.lower_is_better ? kInfinity : -kInfinity,
        .reset_start = settings_.reset_start};
  }

  double smoothed(double metric) {
    now_.window.push_back(metric);
    if (static_cast<int64_t>(now_.window.size()) > settings_.window_size) {
      now_.window.pop_front();
    }
    return std::accumulate(now_.window.begin(), now_.window.end(), 0.0) /
           static_cast<double>(now_.window.size());
  }

  bool is_better(double metric) const {
    const double sign = settings_.lower_is_better ? -1.0 : 1.0;
    const double bound = settings_.relative ? now_.best * (1.0 + sign * settings_.threshold)
                                            : now_.best + sign * settings_.threshold;
    return settings_.lower_is_better ? metric < bound : metric > bound;
  }

  void increase() {
    const double higher = std::min(now_.learning_rate / settings_.factor, settings_.max_lr);
    if (higher - now_.learning_rate > settings_.eps) {
      now_.learning_rate = higher;
    }
    now_.reset_start = settings_.reset_start;
    now_.warmup_counter = settings_.warmup;
    now_.num_good_epochs = 0;
  }

  void reduce() {
    const double lower = std::max(now_.learning_rate * settings_.factor, settings_.min_lr);
    if (now_.learning_rate - lower > settings_.eps) {
      now_.learning_rate = lower;
    }
    if (now_.learning_rate <= settings_.min_lr && --now_.reset_start <= 0) {
      reset();
    }
    now_.cooldown_counter = settings_.cooldown;  // also after a reset
    now_.num_bad_epochs = 0;
  }

  GreedySettings settings_;
  double first_rate_;
  GreedyState now_;
};

}  // namespace

std::unique_ptr<Schedule> make_greedy_schedule(double learning_rate, ScheduleArguments& arguments) {
  const std::array<std::string, 2> modes{"min", "max"};
  const std::array<std::string, 2> threshold_modes{"rel", "abs"};
  GreedySettings settings;
  settings.lower_is_better = arguments.choice("mode", "min", modes) == "min";
  settings.relative = arguments.choice("threshold_mode", "abs", threshold_modes) == "rel";
  settings.factor = arguments.number("factor", settings.factor);
  settings.patience = arguments.whole("patience", settings.patience);
  settings.threshold = arguments.number("threshold", settings.threshold);
  settings.cooldown = arguments.whole("cooldown", settings.cooldown);
  settings.warmup = arguments.whole("warmup", settings.warmup);
  settings.min_lr = arguments.number("min_lr", settings.min_lr);
  settings.max_lr = arguments.number("max_lr", settings.max_lr);
  settings.eps = arguments.number("eps", settings.eps);
  settings.smooth = arguments.boolean("smooth", settings.smooth);
  settings.window_size = arguments.whole("window_size", settings.window_size, /*least=*/1);
  settings.reset_start = arguments.whole("reset_start", settings.reset_start);
  if (!(settings.factor < 1.0 && settings.factor > 0.0)) {
    arguments.problem(fmt::format("factor is {}; it must be above 0 and below 1", settings.factor));
  }
  return std::make_unique<GreedySchedule>(learning_rate, settings);
}

}  // namespace lockstep::optim
