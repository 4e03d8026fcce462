// The learning-rate schedules of transformers.
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "optim/greedy.h"
#include "optim/plateau.h"
#include "optim/schedule_arguments.h"

namespace lockstep::optim {
namespace {

using std::numbers::pi;
/// Factor of the learning rate as a function of the number of completed steps.
using Factor = std::function<double(int64_t)>;

/// Schedule that depends only on the step.
class FactorSchedule : public Schedule {
 public:
  FactorSchedule(double learning_rate, Factor factor)
      : learning_rate_(learning_rate),
        factor_(std::move(factor)) {}
  double learning_rate(int64_t steps_done) const override {
    return learning_rate_ * factor_(steps_done);
  }

 private:
  double learning_rate_;
  Factor factor_;
};

/// Parameters that all schedules have.
struct Span {
  int64_t warmup;
  int64_t total;
  double learning_rate;
};

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

/// Returns a linear warm-up to 1, followed by `after` of the progress from 0 (end of the warm-up)
/// to 1 (end of the run).
Factor warm_up_then(const Span& span, std::function<double(double progress)> after) {
  return [span, after = std::move(after)](int64_t step) {
    if (step < span.warmup) {
      return ratio(step, span.warmup);
    }
    return after(ratio(step - span.warmup, span.total - span.warmup));
  };
}

Factor linear(const Span& span, ScheduleArguments&) {
  return [span](int64_t step) {
    return step < span.warmup ? ratio(step, span.warmup)
                              : std::max(0.0, ratio(span.total - step, span.total - span.warmup));
  };
}

/// Returns a cosine with `cycles` periods between 1 and `lowest`.
Factor cosine_between(const Span& span, double cycles, double lowest) {
  return warm_up_then(span, [=](double progress) {
    const double factor = 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
    return std::max(0.0, factor * (1.0 - lowest) + lowest);
  });
}

Factor cosine(const Span& span, ScheduleArguments& arguments) {
  return cosine_between(span, arguments.number("num_cycles", 0.5), 0.0);
}

Factor cosine_with_restarts(const Span& span, ScheduleArguments& arguments) {
  const double cycles = arguments.number("num_cycles", 1.0);
  return warm_up_then(span, [=](double progress) {
    if (progress >= 1.0) {
      return 0.0;
    }
    return std::max(0.0, 0.5 * (1.0 + std::cos(pi * std::fmod(cycles * progress, 1.0))));
  });
}

Factor polynomial(const Span& span, ScheduleArguments& arguments) {
  const double end = arguments.number("lr_end", 1e-7);
  const double power = arguments.number("power", 1.0);
  if (!(span.learning_rate > end)) {
    arguments.problem(fmt::format(
        "lr_end is {}; it must be below training.learning_rate, {}", end, span.learning_rate));
  }
  return [=](int64_t step) {
    if (step < span.warmup) {
      return ratio(step, span.warmup);
    }
    if (step > span.total || span.total == span.warmup) {
      return end / span.learning_rate;
    }
    const double left = 1.0 - ratio(step - span.warmup, span.total - span.warmup);
    return ((span.learning_rate - end) * std::pow(left, power) + end) / span.learning_rate;
  };
}

Factor constant(const Span&, ScheduleArguments&) {
  return [](int64_t) { return 1.0; };
}

Factor constant_with_warmup(const Span& span, ScheduleArguments&) {
  return warm_up_then(span, [](double) { return 1.0; });
}

Factor inverse_sqrt(const Span& span, ScheduleArguments& arguments) {
  const int64_t timescale =
      arguments.whole("timescale", span.warmup > 0 ? span.warmup : 10000, /*least=*/1);
  return [=](int64_t step) {
    if (step < span.warmup) {
      return ratio(step, span.warmup);
    }
    const auto shifted = static_cast<double>(step + timescale - span.warmup);
    return 1.0 / std::sqrt(shifted / static_cast<double>(timescale));
  };
}

/// Returns min_lr_rate, or min_lr divided by the learning rate. Exactly one of the two is required.
double lowest_factor(const Span& span, ScheduleArguments& arguments) {
  const std::optional<double> rate = arguments.maybe_number("min_lr_rate");
  const std::optional<double> lowest = arguments.maybe_number("min_lr");
  if (rate.has_value() == lowest.has_value()) {
    arguments.problem(
        rate ? "min_lr and min_lr_rate are both set" : "one of min_lr and min_lr_rate is required");
  }
  if (rate || span.learning_rate == 0) {
    return rate.value_or(0.0);
  }
  return lowest.value_or(0.0) / span.learning_rate;
}

Factor cosine_with_min_lr(const Span& span, ScheduleArguments& arguments) {
  const double cycles = arguments.number("num_cycles", 0.5);
  const double lowest = lowest_factor(span, arguments);
  return cosine_between(span, cycles, lowest);
}

/// Variant whose warm-up starts at warmup_lr_rate (by default 1 / warm-up steps) instead of 0.
Factor cosine_warmup_with_min_lr(const Span& span, ScheduleArguments& arguments) {
  const double cycles = arguments.number("num_cycles", 0.5);
  const double lowest = lowest_factor(span, arguments);
  const std::optional<double> first = arguments.maybe_number("warmup_lr_rate");
  return [=](int64_t step) {
    const auto t = static_cast<double>(step);
    const auto warmup = static_cast<double>(span.warmup);
    if (step < span.warmup) {
      return first ? *first + (1.0 - *first) * t / std::max(1.0, warmup - 1.0)
                   : (t + 1.0) / std::max(1.0, warmup);
    }
    const double progress =
        (t - warmup + 1.0) / std::max(1.0, static_cast<double>(span.total) - warmup);
    const double factor = 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
    return std::max(0.0, factor * (1.0 - lowest) + lowest);
  };
}

/// Returns one of three slope forms from 0 to 1 (`rising`) or from 1 to 0.
double slope(const std::string& form, bool rising, double cycles, double progress) {
  if (form == "linear") {
    return rising ? progress : 1.0 - progress;
  }
  if (form == "cosine") {
    return rising ? 0.5 * (1.0 - std::cos(pi * progress))
                  : 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
  }
  return 1.0 - std::sqrt(rising ? 1.0 - progress : progress);  // the form "1-sqrt"
}

Factor warmup_stable_decay(const Span& span, ScheduleArguments& arguments) {
  const std::vector<std::string> forms{"linear", "cosine", "1-sqrt"};
  const int64_t decay = arguments.needed_whole("num_decay_steps");
  const int64_t stable =
      arguments.whole("num_stable_steps", std::max<int64_t>(0, span.total - span.warmup - decay));
  const std::string warmup_form = arguments.choice("warmup_type", "linear", forms);
  const std::string decay_form = arguments.choice("decay_type", "cosine", forms);
  const double lowest = arguments.number("min_lr_ratio", 0.0);
  const double cycles = arguments.number("num_cycles", 0.5);
  if (span.warmup + decay > span.total && !arguments.has("num_stable_steps")) {
    arguments.problem(fmt::format(
        "num_decay_steps is {}; with a warm-up of {} it exceeds the run's {} steps",
        decay,
        span.warmup,
        span.total));
  }
  return [=](int64_t step) {
    const auto above_lowest = [&](double factor) {
      return std::max(0.0, factor * (1.0 - lowest) + lowest);
    };
    if (step < span.warmup) {
      return above_lowest(slope(warmup_form, true, cycles, ratio(step, span.warmup)));
    }
    const int64_t decaying = step - span.warmup - stable;
    if (decaying < 0) {
      return 1.0;
    }
    return decaying < decay ? above_lowest(slope(decay_form, false, cycles, ratio(decaying, decay)))
                            : lowest;
  };
}

using ScheduleMaker = Factor (*)(const Span&, ScheduleArguments&);

const std::map<std::string, ScheduleMaker>& schedule_makers() {
  static const std::map<std::string, ScheduleMaker> table{
      {"linear", linear},
      {"cosine", cosine},
      {"cosine_with_restarts", cosine_with_restarts},
      {"polynomial", polynomial},
      {"constant", constant},
      {"constant_with_warmup", constant_with_warmup},
      {"inverse_sqrt", inverse_sqrt},
      {"cosine_with_min_lr", cosine_with_min_lr},
      {"cosine_warmup_with_min_lr", cosine_warmup_with_min_lr},
      {"warmup_stable_decay", warmup_stable_decay},
  };
  return table;
}

using MetricScheduleMaker = std::unique_ptr<Schedule> (*)(double, ScheduleArguments&);

/// Schedules that depend on the evaluations.
const std::map<std::string, MetricScheduleMaker>& metric_schedule_makers() {
  static const std::map<std::string, MetricScheduleMaker> table{
      {"greedy", make_greedy_schedule}, {"reduce_lr_on_plateau", make_plateau_schedule}};
  return table;
}

void check_options(const ScheduleOptions& options, ScheduleArguments& arguments) {
  if (!(options.learning_rate >= 0) || !std::isfinite(options.learning_rate)) {
    arguments.problem(fmt::format(
        "training.learning_rate is {}; it must not be negative", options.learning_rate));
  }
  if (!(options.warmup_steps >= 0) || !std::isfinite(options.warmup_steps)) {
    arguments.problem(fmt::format(
        "training.warmup_steps is {}; it must be a number of steps, or a fraction below 1",
        options.warmup_steps));
  }
  if (!(options.warmup_ratio >= 0 && options.warmup_ratio <= 1)) {
    arguments.problem(fmt::format(
        "training.warmup_ratio is {}; it must be between 0 and 1", options.warmup_ratio));
  }
}

}  // namespace

void Schedule::observe(double) {}
nlohmann::json Schedule::state() const {
  return nlohmann::json::object();
}
void Schedule::load_state(const nlohmann::json&) {}

int64_t warmup_steps_of(double warmup_steps, double warmup_ratio, int64_t total_steps) {
  if (warmup_steps >= 1.0) {
    return static_cast<int64_t>(warmup_steps);
  }
  const double share = warmup_steps > 0.0 ? warmup_steps : warmup_ratio;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * share));
}

std::unique_ptr<Schedule> make_schedule(const ScheduleOptions& options) {
  const std::string& type = options.lr_scheduler_type;
  ScheduleArguments arguments(type, options.lr_scheduler_kwargs);
  check_options(options, arguments);
  arguments.throw_problems(/*with_unknown=*/false);
  const Span span{
      .warmup = warmup_steps_of(options.warmup_steps, options.warmup_ratio, options.total_steps),
      .total = options.total_steps,
      .learning_rate = options.learning_rate};
  std::unique_ptr<Schedule> schedule;
  if (const auto by_metric = metric_schedule_makers().find(type);
      by_metric != metric_schedule_makers().end()) {
    schedule = by_metric->second(options.learning_rate, arguments);
  } else if (const auto found = schedule_makers().find(type); found != schedule_makers().end()) {
    schedule =
        std::make_unique<FactorSchedule>(options.learning_rate, found->second(span, arguments));
  } else {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "training.lr_scheduler_type is '{}', which is not one of {}.{}",
            type,
            fmt::join(schedule_names(), ", "),
            did_you_mean(type, schedule_names())));
  }
  arguments.throw_problems(/*with_unknown=*/true);
  return schedule;
}

std::span<const std::string> schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, maker] : metric_schedule_makers()) {
      list.push_back(name);
    }
    for (const auto& [name, maker] : schedule_makers()) {
      list.push_back(name);
    }
    std::sort(list.begin(), list.end());
    return list;
  }();
  return names;
}

}  // namespace lockstep::optim
