// Executes `lockstep ctl` commands in a run.
#include "train/steering.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/tasks.h"
#include "watch/record/run.h"

namespace lockstep::train {
namespace {

using ActKind = watch::Act::Kind;

/// Throws Error if this run does not support the command. Called on the server's thread, so it only
/// reads members of the job that do not change.
void check_act(const Job& job, const watch::Act& act) {
  const bool forgets = config::unlearns(job.config.task);
  const bool can_evaluate =
      forgets ? !job.config.unlearning.data_dir.empty() : job.datasets.validation != nullptr;
  if (act.kind == ActKind::kEvaluate && !can_evaluate) {
    throw Error(
        ErrorKind::kConfig,
        "this run has no validation data",
        forgets ? "start it with unlearning.data_dir=FOLDER with TOFU's files"
                : "start it with data.validation=FILE or data.validation_fraction=0.05");
  }
  if (act.kind == ActKind::kLogEvery && job.config.training.logging_strategy != "steps") {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("this run has logging_strategy={}", job.config.training.logging_strategy),
        "the logging interval can only be set with logging_strategy=steps");
  }
}

/// Returns true if the configured learning rate is still the same as at the time of the change.
bool holds(const Job& job, const RateAct& act) {
  return act.configured == job.config.training.learning_rate;
}

nlohmann::ordered_json json_of(const RateAct& act) {
  return {{"step", act.step}, {"learning_rate", act.learning_rate}, {"configured", act.configured}};
}

RateAct act_of(const nlohmann::json& json) {
  return {json.at("step"), json.at("learning_rate"), json.at("configured")};
}

/// True for the event of a RateAct with all its fields.
bool sets_rate(const nlohmann::json& event) {
  const auto found = event.find("act");
  const auto has_number = [&](const char* key) {
    return event.contains(key) && event.at(key).is_number();
  };
  return found != event.end() && *found == "set" && has_number("step") &&
         has_number("learning_rate") && has_number("configured");
}

}  // namespace

std::array<double, Acts::kNumbers> Acts::numbers() const {
  // Zero means not set. The log level is therefore stored plus one. The learning rate has a
  // separate flag, so that its value is not modified.
  const double level = log_level ? *log_level + 1 : 0;
  const int flags = (save ? 1 : 0) + (stop ? 2 : 0) + (evaluate ? 4 : 0);
  return {
      static_cast<double>(flags),
      level,
      learning_rate ? 1.0 : 0.0,
      learning_rate.value_or(0),
      static_cast<double>(traced_steps),
      static_cast<double>(logging_steps)};
}

Acts Acts::from_numbers(std::span<const double, kNumbers> numbers) {
  const int flags = static_cast<int>(numbers[0]);
  Acts acts;
  acts.save = (flags & 1) != 0;
  acts.stop = (flags & 2) != 0;
  acts.evaluate = (flags & 4) != 0;
  if (numbers[1] > 0) {
    acts.log_level = static_cast<int>(numbers[1]) - 1;
  }
  if (numbers[2] > 0) {
    acts.learning_rate = numbers[3];
  }
  acts.traced_steps = static_cast<int64_t>(numbers[4]);
  acts.logging_steps = static_cast<int64_t>(numbers[5]);
  return acts;
}

Steering::Steering(Job& job, const RankContext& rank_context)
    : job_(job),
      rank_context_(rank_context) {
  if (!rank_context.is_first() || !job.config.monitor.control) {
    return;
  }
  try {
    server_ = std::make_unique<watch::ControlServer>(
        job.config.training.output_dir, [&job](const watch::Act& act) { check_act(job, act); });
    publish();
  } catch (const Error& error) {
    log_warning("the run cannot be controlled with lockstep ctl: {}", error.message());
  }
}

Acts Steering::take() {
  Acts acts;
  if (server_ == nullptr) {
    return acts;
  }
  for (watch::Asked& asked : server_->take()) {
    const watch::Act& act = asked.act;
    acts.save = acts.save || act.kind == ActKind::kSave;
    acts.stop = acts.stop || act.kind == ActKind::kStop;
    acts.evaluate = acts.evaluate || act.kind == ActKind::kEvaluate;
    if (act.kind == ActKind::kLog) {
      acts.log_level = act.level;
    } else if (act.kind == ActKind::kSet) {
      acts.learning_rate = act.learning_rate;
    } else if (act.kind == ActKind::kLogEvery) {
      acts.logging_steps = act.steps;
    } else if (act.kind == ActKind::kTrace) {
      acts.traced_steps = std::max(acts.traced_steps, act.steps);
    }
    asked_.push_back(std::move(asked));
  }
  return acts;
}

void Steering::record(const Acts& acts) {
  if (job_.monitor == nullptr) {
    return;
  }
  const auto tell = [&](const char* name, nlohmann::ordered_json fields = {}) {
    nlohmann::ordered_json event{{"act", name}};
    event.update(fields.is_null() ? nlohmann::ordered_json::object() : fields);
    job_.monitor->event("act", event);
    log_info("received through the run's socket: {}", event.dump());
  };
  if (acts.save) {
    tell("save");
  }
  if (acts.stop) {
    tell("stop");
  }
  if (acts.evaluate) {
    tell("eval");
  }
  if (acts.log_level) {
    tell("log", {{"level", *acts.log_level}});
  }
  if (acts.traced_steps > 0) {
    tell("trace", {{"steps", acts.traced_steps}});
  }
  if (acts.logging_steps > 0) {
    tell("set logging_steps", {{"logging_steps", acts.logging_steps}});
  }
  if (acts.learning_rate) {
    tell("set", json_of(job_.rate_acts.back()));
  }
}

void Steering::begin_step(const Acts& acts) {
  while (!job_.acts_to_come.empty() && job_.acts_to_come.front().step <= job_.progress.step) {
    const RateAct act = job_.acts_to_come.front();
    job_.acts_to_come.erase(job_.acts_to_come.begin());
    set_learning_rate(job_, act.learning_rate);
    job_.rate_acts.push_back(act);
    if (rank_context_.is_first()) {
      log_info("repeated learning_rate={} from step {} on", act.learning_rate, act.step + 1);
    }
  }
  if (acts.log_level) {
    set_log_level(static_cast<LogLevel>(*acts.log_level));
  }
  if (acts.logging_steps > 0) {
    job_.length.logging_steps = acts.logging_steps;
    if (job_.monitor != nullptr) {
      job_.monitor->set_logging_steps(acts.logging_steps);
    }
  }
  if (acts.learning_rate) {
    set_learning_rate(job_, *acts.learning_rate);
    job_.rate_acts.push_back(
        {job_.progress.step, *acts.learning_rate, job_.config.training.learning_rate});
  }
  record(acts);
}

void Steering::end_save(int64_t step) {
  for (watch::Asked& asked : std::exchange(saving_, {})) {
    asked.answer(true, fmt::format("saved checkpoint-{}", step));
  }
}

void Steering::end_step(bool saved, bool in_background, const std::string& evaluated) {
  for (watch::Asked& asked : std::exchange(asked_, {})) {
    const int64_t step = job_.progress.step;
    switch (asked.act.kind) {
      case ActKind::kSave:
        if (in_background) {
          saving_.push_back(std::move(asked));
          break;
        }
        asked.answer(saved, fmt::format("saved checkpoint-{}", step));
        break;
      case ActKind::kStop:
        asked.answer(saved, fmt::format("saved checkpoint-{} and stopped", step));
        break;
      case ActKind::kEvaluate:
        asked.answer(true, evaluated);
        break;
      case ActKind::kLog:
        asked.answer(true, fmt::format("since step {}", step));
        break;
      case ActKind::kSet:
        asked.answer(
            true, fmt::format("learning_rate={} from step {} on", asked.act.learning_rate, step));
        break;
      case ActKind::kLogEvery:
        asked.answer(
            true, fmt::format("logging every {} steps since step {}", asked.act.steps, step));
        break;
      case ActKind::kTrace:
        asked.answer(
            true,
            fmt::format(
                "traces of the next {} steps are written to trace-STEP.json in the run's folder",
                asked.act.steps));
        break;
    }
  }
}

void Steering::publish() {
  if (server_ == nullptr || job_.monitor == nullptr) {
    return;
  }
  const monitor::ProgressFigures& figures = job_.monitor->figures();
  nlohmann::ordered_json status{
      {"step", job_.progress.step},
      {"steps", job_.length.total_steps},
      {"epoch", job_.progress.epoch},
      {"ranks", rank_context_.size()}};
  if (figures.step > 0) {
    status["loss"] = figures.loss;
    status["learning_rate"] = figures.learning_rate;
  }
  if (figures.tokens_per_s) {
    status["tokens_per_s"] = *figures.tokens_per_s;
  }
  if (figures.seconds_left) {
    status["seconds_left"] = *figures.seconds_left;
  }
  server_->publish(std::move(status));
}

void set_learning_rate(Job& job, double learning_rate) {
  job.schedule_options.learning_rate = learning_rate;
  std::unique_ptr<optim::Schedule> schedule = optim::make_schedule(job.schedule_options);
  nlohmann::json state = job.schedule->state();
  if (state.contains("learning_rate")) {  // schedules that reduce the rate on a plateau
    state["learning_rate"] = learning_rate;
  }
  schedule->load_state(state);
  job.schedule = std::move(schedule);
}

nlohmann::ordered_json acts_json(const Job& job) {
  auto list = nlohmann::ordered_json::array();
  for (const RateAct& act : job.rate_acts) {
    list.push_back(json_of(act));
  }
  return list;
}

void restore_acts(Job& job, const nlohmann::json& acts, const RankContext& rank_context) {
  job.rate_acts.clear();
  for (const nlohmann::json& act : acts) {
    job.rate_acts.push_back(act_of(act));
  }
  if (job.rate_acts.empty()) {
    return;
  }
  const RateAct& last = job.rate_acts.back();
  if (holds(job, last)) {
    set_learning_rate(job, last.learning_rate);
  }
  if (rank_context.is_first()) {
    if (holds(job, last)) {
      log_info("learning_rate={}, as set after step {}", last.learning_rate, last.step);
    } else {
      log_warning(
          "learning_rate was set to {} after step {}; the configuration's {} is newer and takes "
          "precedence",
          last.learning_rate,
          last.step,
          job.config.training.learning_rate);
    }
  }
}

void read_acts_to_come(Job& job, RankContext& rank_context) {
  const std::string text = on_first_rank(rank_context.communicator, [&] {
    auto list = nlohmann::json::array();
    for (watch::Event& event : watch::read_events(job.config.training.output_dir, {"act"})) {
      if (sets_rate(event.fields) && event.step >= job.progress.step) {
        list.push_back(std::move(event.fields));
      }
    }
    return list.dump();
  });
  for (const nlohmann::json& event : nlohmann::json::parse(text)) {
    if (const RateAct act = act_of(event); holds(job, act)) {
      job.acts_to_come.push_back(act);
    }
  }
  std::stable_sort(
      job.acts_to_come.begin(), job.acts_to_come.end(), [](const RateAct& a, const RateAct& b) {
        return a.step < b.step;
      });
}

}  // namespace lockstep::train
