// Learning-rate schedule that reduces the rate when a metric stops improving.
#include "optim/plateau.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::optim {
namespace {

struct PlateauSettings {
  bool lower_is_better = true;
  bool relative = true;
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  int64_t cooldown = 0;
  double min_learning_rate = 0;
  double epsilon = 1e-8;
};

class PlateauSchedule : public Schedule {
 public:
  PlateauSchedule(double learning_rate, const PlateauSettings& settings)
      : settings_(settings),
        learning_rate_(learning_rate),
        best_(
            settings.lower_is_better ? std::numeric_limits<double>::infinity()
                                     : -std::numeric_limits<double>::infinity()) {}

  double learning_rate(int64_t) const override { return learning_rate_; }
  bool wants_metric() const override { return true; }

  void observe(double metric) override {
    if (is_better(metric)) {
      best_ = metric;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooling_ > 0) {
      --cooling_;
      bad_ = 0;
    }
    if (bad_ > settings_.patience) {
      const double lower = std::max(learning_rate_ * settings_.factor, settings_.min_learning_rate);
      if (learning_rate_ - lower > settings_.epsilon) {
        learning_rate_ = lower;
      }
      cooling_ = settings_.cooldown;
      bad_ = 0;
    }
  }

  nlohmann::json state() const override {
    nlohmann::json state{
        {"learning_rate", learning_rate_},
        {"num_bad_epochs", bad_},
        {"cooldown_counter", cooling_}};
    // Before the first observation, the value is infinite, which JSON cannot represent.
    state["best"] = std::abs(best_) < std::numeric_limits<double>::infinity()
                        ? nlohmann::json(best_)
                        : nlohmann::json();
    return state;
  }

  void load_state(const nlohmann::json& state) override {
    try {
      const auto rate = state.at("learning_rate").get<double>();
      const auto bad = state.at("num_bad_epochs").get<int64_t>();
      const auto cooling = state.at("cooldown_counter").get<int64_t>();
      const double best = state.at("best").is_null() ? best_ : state.at("best").get<double>();
      learning_rate_ = rate;
      bad_ = bad;
      cooling_ = cooling;
      best_ = best;
    } catch (const nlohmann::json::exception& error) {
      throw Error(
          ErrorKind::kCheckpoint,
          fmt::format("the saved state of reduce_lr_on_plateau is invalid: {}", error.what()),
          "resume with the lr_scheduler_type with which the checkpoint was written");
    }
  }

 private:
  bool is_better(double metric) const {
    const double sign = settings_.lower_is_better ? -1.0 : 1.0;
    const double bound = settings_.relative ? best_ * (1.0 + sign * settings_.threshold)
                                            : best_ + sign * settings_.threshold;
    return settings_.lower_is_better ? metric < bound : metric > bound;
  }

  PlateauSettings settings_;
  double learning_rate_;
  double best_;
  int64_t bad_ = 0;
  int64_t cooling_ = 0;
};

}  // namespace

std::unique_ptr<Schedule> make_plateau_schedule(
    double learning_rate, ScheduleArguments& arguments) {
  const std::array<std::string, 2> modes{"min", "max"};
  const std::array<std::string, 2> threshold_modes{"rel", "abs"};
  PlateauSettings settings;
  settings.lower_is_better = arguments.choice("mode", "min", modes) == "min";
  settings.relative = arguments.choice("threshold_mode", "rel", threshold_modes) == "rel";
  settings.factor = arguments.number("factor", settings.factor);
  settings.patience = arguments.whole("patience", settings.patience);
  settings.threshold = arguments.number("threshold", settings.threshold);
  settings.cooldown = arguments.whole("cooldown", settings.cooldown);
  settings.min_learning_rate = arguments.number("min_lr", settings.min_learning_rate);
  settings.epsilon = arguments.number("eps", settings.epsilon);
  if (!(settings.factor < 1.0 && settings.factor >= 0.0)) {
    arguments.problem(fmt::format("factor is {}; it must be in [0, 1)", settings.factor));
  }
  return std::make_unique<PlateauSchedule>(learning_rate, settings);
}

}  // namespace lockstep::optim
