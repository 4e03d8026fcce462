// Learning-rate schedules, counted in optimizer steps, equal to transformers' of the same names.
// Pure: no libtorch in this header, no ranks, no time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::optim {

/// What the user set: TrainingArguments' names.
struct ScheduleOptions {
  std::string lr_scheduler_type = "linear";
  /// JSON object of the type's own arguments, or "" for none.
  std::string lr_scheduler_kwargs{};
  double learning_rate = 5e-5;
  /// Optimizer steps of the whole run, over all epochs and resumes. Not negative.
  int64_t total_steps = 0;
  /// Steps of the warm-up; below 1 a share of total_steps (see warmup_steps_of).
  double warmup_steps = 0.0;
  /// The older name: a share of total_steps, used where warmup_steps is 0.
  double warmup_ratio = 0.0;
};

/// The learning rate of each optimizer step.
class Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// The rate of the update that comes after `steps_done` updates: the first update of a run is 0,
  /// and with a warm-up its rate is 0 too. Depends on nothing but the argument, and, for
  /// reduce_lr_on_plateau, on what was observed.
  virtual double learning_rate(int64_t steps_done) const = 0;
  /// Whether observe() matters: the trainer must then evaluate, or report the training loss.
  virtual bool wants_metric() const { return false; }
  /// Tells a new value of the watched metric (after each evaluation). Every rank must tell the same
  /// value.
  virtual void observe(double metric);
  /// What a checkpoint keeps: an object, {} for the schedules that are functions of the step.
  virtual nlohmann::json state() const;
  /// Takes back what state() gave. Throws Error(kCheckpoint) where it does not fit.
  virtual void load_state(const nlohmann::json& state);

 protected:
  Schedule() = default;
};

/// The schedule of that name. Throws Error(kConfig) that lists every problem: an unknown type (with
/// the nearest name), an unknown or missing argument, a value out of range.
std::unique_ptr<Schedule> make_schedule(const ScheduleOptions& options);

/// Steps of the warm-up: warmup_steps where it is at least 1 (rounded down), else ceil(total *
/// warmup_steps) where it is above 0, else ceil(total * warmup_ratio).
int64_t warmup_steps_of(double warmup_steps, double warmup_ratio, int64_t total_steps);

/// The names that make_schedule knows, sorted.
std::span<const std::string> schedule_names();

}  // namespace lockstep::optim
