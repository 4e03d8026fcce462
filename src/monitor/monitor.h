// Interface of the trainer for monitoring, on rank 0. The trainer reports steps and evaluations.
// Monitor updates the progress line, metrics.jsonl, trainer_state.json, the result files and the
// trackers of report_to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "monitor/events.h"
#include "monitor/progress.h"
#include "monitor/rank_file.h"
#include "monitor/rates.h"
#include "monitor/record.h"
#include "monitor/trainer_state.h"

namespace lockstep::monitor {

class Spans;

enum class LoggingStrategy { kNo, kSteps, kEpoch };

struct MonitorOptions {
  std::filesystem::path output_dir{};
  LoggingStrategy logging_strategy = LoggingStrategy::kSteps;
  int64_t logging_steps = 500;  // resolved to a number of steps, at least 1
  bool logging_first_step = false;
  int64_t total_steps = 0;
  /// Peak FLOP/s of matrix products, summed over the devices of all ranks. 0 if unknown.
  double peak_flops = 0;
  std::vector<std::string> report_to{};  // "tensorboard", "wandb", "mlflow"; "none", "all"
  std::string run_name{};
  std::string project{};
  bool wandb_ranks = false;             // also create a W&B run per rank
  std::filesystem::path logging_dir{};  // for TensorBoard; empty: output_dir/runs/<time>_<host>
  /// Resolved configuration as a JSON object, for the trackers. May be empty.
  std::string configuration_json{};
  /// Address of an OpenTelemetry collector to which spans of steps are sent. Empty: none.
  std::string otlp{};
  /// Looks up environment variables such as WANDB_PROJECT. If not set, those of the process are
  /// used.
  std::function<const char*(const char* name)> environment{};
  Progress::Style progress = Progress::Style::kAuto;
};

/// Report of an optimizer step. Values are over all ranks unless noted otherwise.
struct StepReport {
  int64_t step = 0;  // completed steps, including this one
  double epoch = 0.0;
  double loss = 0.0;
  double learning_rate = 0.0;  // used in this step
  std::optional<double> grad_norm{};
  /// Metrics of the objective by name. A step may have only some of them.
  std::vector<std::pair<std::string, double>> metrics{};
  int64_t tokens = 0;   // in this step
  int64_t samples = 0;  // in this step
  double flops = 0;     // of matrix products in this step; 0 if unknown
  double step_s = 0;    // wall time of this rank
  double data_wait_s = 0;
  double communication_wait_s = 0;
  int64_t peak_memory_bytes = 0;  // of this rank or the maximum over ranks, as the trainer chooses
  bool epoch_ends = false;        // true for the last step of an epoch
};

/// Report of an evaluation over all ranks.
struct EvaluationReport {
  int64_t step = 0;
  double epoch = 0.0;
  double loss = 0.0;  // mean per token
  /// Metrics of the objective by name, without prefix.
  std::vector<std::pair<std::string, double>> metrics{};
  int64_t samples = 0;
  int64_t batches = 0;
  double runtime_s = 0;
  std::string prefix = "eval";  // prefix of metric names, as in eval_loss
  std::string suffix = {};      // suffix of metric names, as in eval_loss_mm
  /// Additional values by full name. They are not written to the result files.
  std::vector<std::pair<std::string, Number>> values{};
};

/// Text that the model generated for a prompt.
struct Sample {
  std::string prompt, text;  // `text` excludes the prompt
};

/// Wall clock (in seconds since 1970) and monotonic clock. Tests use their own.
struct Clocks {
  std::function<double()> wall;
  std::function<double()> steady;
  static Clocks system();
};

/// Monitor of a run. Not thread-safe. The constructor throws Error if a file cannot be written. If
/// a later write fails, for example because the disk is full, logs a warning and drops the data.
class Monitor {
 public:
  /// Starts a run: creates output_dir if necessary, and opens metrics.jsonl and the trackers.
  /// `resumed` is the trainer_state.json of the checkpoint to resume from. Later lines are removed
  /// from metrics.jsonl.
  Monitor(
      MonitorOptions options,
      std::optional<TrainerState> resumed,
      Clocks clocks = Clocks::system());
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Sets the roofline time of a step in seconds (0 if unknown). Reports then include the achieved
  /// fraction.
  void set_roofline(double seconds) { roofline_s_ = seconds; }
  /// Sets MonitorOptions::peak_flops after construction.
  void set_peak_flops(double peak) { options_.peak_flops = peak; }
  /// Reports a step. Returns true if it was logged.
  bool step(const StepReport& report);
  void evaluation(const EvaluationReport& report);
  /// Logs the event "samples". Also logs one text per sample to the trackers.
  void samples(const std::vector<Sample>& samples);
  /// Logs the distribution of a tensor's values to trackers that support it.
  void histogram(const std::string& name, const Histogram& values);
  /// Writes the ranks' times since the last call to ranks.jsonl.
  void ranks(const RankShares& shares);
  /// Prints a line on the terminal or in the log that stays.
  void print(const std::string& line) { progress_.print(line); }
  /// Ends the progress line of the steps: it stays on the screen, and later log lines follow it.
  void end_steps();
  /// Shows an activity such as "saving checkpoint-100" until the next step.
  void activity(const std::string& text);
  /// Appends an event to events.jsonl at the last reported step. Adds "in_steps_s", the time in
  /// seconds that this attempt has spent in steps. An event of an earlier moment has its own "step"
  /// and "in_steps_s" in `fields`. Must be called from the trainer's thread.
  void event(std::string_view name, const nlohmann::ordered_json& fields);
  /// Returns the time in seconds that this attempt has spent in steps.
  double seconds_in_steps() const { return run_.seconds; }
  /// Ends the run: writes train_results.json, all_results.json and trainer_state.json, and closes
  /// the trackers.
  void finish();

  /// Returns the state of the run, which step() and evaluation() update. The trainer sets the other
  /// fields (best_metric, batch size, ...) and saves to_json(state()) in each checkpoint.
  TrainerState& state() { return state_; }
  /// Sets the logging interval in steps, at least 1. Must be called on the trainer's thread.
  void set_logging_steps(int64_t steps) { options_.logging_steps = steps; }
  /// Returns the values of the progress line. Valid after the first step.
  const ProgressFigures& figures() const { return figures_; }
  /// Adds a sink that receives all later records.
  void add_sink(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }

 private:
  /// Sums over several steps.
  struct Sums {
    int64_t steps = 0, tokens = 0, samples = 0;
    double loss = 0, seconds = 0, flops = 0;
    /// Sum of a metric and the number of steps that reported it.
    struct Metric {
      std::string name;
      double sum = 0;
      int64_t steps = 0;
    };
    std::vector<Metric> metrics;
    void add(const StepReport& report);
    std::vector<std::pair<std::string, double>> metric_means() const;
  };
  bool due(const StepReport& report) const;
  void tell_span(const StepReport& report);
  Record training_record(const StepReport& report) const;
  Record summary_record() const;
  void log(const Record& record);
  /// Calls `body` for each sink. If a sink throws, logs a warning once and removes the sink.
  void to_sinks(const std::function<void(MetricsSink&)>& body);
  /// Returns false and logs a warning if writing fails.
  static bool try_to_write(const char* what, const std::function<void()>& body);
  ProgressFigures figures(const StepReport& report) const;

  MonitorOptions options_;
  Clocks clocks_;
  TrainerState state_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  std::optional<EventFile> events_;  // reset after a write error
  std::optional<RankFile> ranks_;    // reset after a write error
  std::unique_ptr<Spans> spans_;     // reset after a write error
  Progress progress_;
  // Rates over the time spent in steps, excluding evaluations.
  WindowedRate steps_rate_, tokens_rate_, flops_rate_, data_wait_rate_, communication_wait_rate_;
  Sums since_log_, run_;
  double roofline_s_ = 0;
  double begun_ = 0;         // start of the first step on the monotonic clock
  ProgressFigures figures_;  // of the last step
  bool finished_ = false;
};

}  // namespace lockstep::monitor
