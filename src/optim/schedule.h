// Learning-rate schedules in optimizer steps, identical to transformers' schedules of the same
// names. This header does not depend on libtorch, ranks or time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace lockstep::optim {

/// Options set by the user, with the names of TrainingArguments.
struct ScheduleOptions {
  std::string lr_scheduler_type = "linear";
  /// JSON object with arguments for this type of schedule; empty: no arguments.
  std::string lr_scheduler_kwargs{};
  double learning_rate = 5e-5;
  /// Number of optimizer steps of the whole run, including all epochs and resumed runs. Not
  /// negative.
  int64_t total_steps = 0;
  /// Number of warm-up steps; a value below 1 is a fraction of total_steps (see warmup_steps_of).
  double warmup_steps = 0.0;
  /// Older option: warm-up as a fraction of total_steps. Used if warmup_steps is 0.
  double warmup_ratio = 0.0;
};

/// Computes the learning rate of each optimizer step.
class Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// Returns the learning rate of the update that follows `steps_done` updates. 0 is the first
  /// update of the run, whose rate is 0 if there is a warm-up. The result depends only on the
  /// argument and, for reduce_lr_on_plateau and greedy, on the observed metrics.
  virtual double learning_rate(int64_t steps_done) const = 0;
  /// Returns true if the schedule uses observe(). The trainer must then evaluate or pass the
  /// training loss.
  virtual bool wants_metric() const { return false; }
  /// Passes a new value of the metric, after each evaluation. All ranks must pass the same value.
  virtual void observe(double metric);
  /// Returns the state for checkpoints: a JSON object, which is {} for schedules that depend only
  /// on the step.
  virtual nlohmann::json state() const;
  /// Restores a state returned by state(). Throws Error(kCheckpoint) if it does not match the
  /// schedule.
  virtual void load_state(const nlohmann::json& state);

 protected:
  Schedule() = default;
};

/// Creates a schedule by name. Throws Error(kConfig) that lists all problems: an unknown type (with
/// the closest name), unknown or missing arguments, values out of range.
std::unique_ptr<Schedule> make_schedule(const ScheduleOptions& options);

/// Returns the number of warm-up steps: warmup_steps, rounded down, if it is at least 1; otherwise
/// ceil(total * warmup_steps) if that is positive; otherwise ceil(total * warmup_ratio).
int64_t warmup_steps_of(double warmup_steps, double warmup_ratio, int64_t total_steps);

/// Returns the names of all schedules, sorted.
std::span<const std::string> schedule_names();

}  // namespace lockstep::optim
