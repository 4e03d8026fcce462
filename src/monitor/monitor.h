// All that the trainer knows of monitoring: it reports steps and evaluations, and the progress
// line, metrics.jsonl, trainer_state.json, the result files and the trackers of report_to follow.
// Rank 0 has one, the others none.
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
  int64_t logging_steps = 500;  // resolved: a whole number of steps, at least 1
  bool logging_first_step = false;
  int64_t total_steps = 0;
  /// Floating-point operations a second that the devices of all ranks could do in matrix products;
  /// 0: unknown.
  double peak_flops = 0;
  std::vector<std::string> report_to{};  // "tensorboard", "wandb", "mlflow"; "none", "all"
  std::string run_name{};
  std::string project{};
  bool wandb_ranks = false;             // a run of W&B for each rank too
  std::filesystem::path logging_dir{};  // of TensorBoard; empty: output_dir/runs/<time>_<host>
  /// The resolved configuration as a JSON object, for the trackers; "" for none.
  std::string configuration_json{};
  /// The address of an OpenTelemetry collector, which gets spans of steps; "" for none.
  std::string otlp{};
  /// Where the trackers look for WANDB_PROJECT and the like; none: the process's environment.
  std::function<const char*(const char* name)> environment{};
  Progress::Style progress = Progress::Style::kAuto;
};

/// One optimizer step, over all ranks where not said otherwise.
struct StepReport {
  int64_t step = 0;  // steps done, this one included
  double epoch = 0.0;
  double loss = 0.0;
  double learning_rate = 0.0;  // that was applied
  std::optional<double> grad_norm{};
  /// The objective's, by their names; one may be missing in a step.
  std::vector<std::pair<std::string, double>> metrics{};
  int64_t tokens = 0;   // of this step
  int64_t samples = 0;  // of this step
  double flops = 0;     // of this step, in matrix products; 0: unknown
  double step_s = 0;    // wall time of this rank
  double data_wait_s = 0;
  double communication_wait_s = 0;
  int64_t peak_memory_bytes = 0;  // of this rank or the most of all: the trainer's choice
  bool epoch_ends = false;        // the last step of an epoch
};

/// One evaluation, over all ranks.
struct EvaluationReport {
  int64_t step = 0;
  double epoch = 0.0;
  double loss = 0.0;  // mean of a token
  /// The objective's, by their names without the prefix.
  std::vector<std::pair<std::string, double>> metrics{};
  int64_t samples = 0;
  int64_t batches = 0;
  double runtime_s = 0;
  std::string prefix = "eval";  // of the names: eval_loss
  std::string suffix = {};      // likewise: eval_loss_mm
  /// More numbers, by their whole names; not in the results' files.
  std::vector<std::pair<std::string, Number>> values{};
};

/// What a model made of a prompt.
struct Sample {
  std::string prompt, text;  // `text`: what is new
};

/// Seconds since 1970 and of a steady clock; tests pass their own.
struct Clocks {
  std::function<double()> wall;
  std::function<double()> steady;
  static Clocks system();
};

/// For one thread. The constructor throws an Error where a file cannot be written; later a full
/// disk costs what was to be written, with a warning, and not the run.
class Monitor {
 public:
  /// Begins a run: creates output_dir where needed, opens metrics.jsonl and the trackers. With
  /// `resumed` (the trainer_state.json of the checkpoint that is continued) lines after its step
  /// are cut from metrics.jsonl.
  Monitor(
      MonitorOptions options,
      std::optional<TrainerState> resumed,
      Clocks clocks = Clocks::system());
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Seconds of a step that the machine's rates bound it by, for the share of it that is reached;
  /// 0: unknown.
  void set_roofline(double seconds) { roofline_s_ = seconds; }
  /// MonitorOptions::peak_flops, once they are known.
  void set_peak_flops(double peak) { options_.peak_flops = peak; }
  /// After every step. Returns whether the step was logged.
  bool step(const StepReport& report);
  void evaluation(const EvaluationReport& report);
  /// An event "samples", and a text of each for the trackers.
  void samples(const std::vector<Sample>& samples);
  /// How a tensor's values are distributed, for the trackers that show it.
  void histogram(const std::string& name, const Histogram& values);
  /// What the ranks did since this was last called, into ranks.jsonl.
  void ranks(const RankShares& shares);
  /// "saving checkpoint-100", until the next step.
  void activity(const std::string& text);
  /// Adds an event to events.jsonl at the step that was last reported, with "in_steps_s": the
  /// seconds that this attempt's steps have taken so far. From the trainer's thread.
  void event(std::string_view name, const nlohmann::ordered_json& fields);
  /// The run is done: train_results.json, all_results.json, trainer_state.json; trackers are
  /// closed.
  void finish();

  /// Kept up to date by step() and evaluation(); the trainer sets the rest (best_metric, batch
  /// size, ...), and writes to_json(state()) into each checkpoint.
  TrainerState& state() { return state_; }
  /// A line each so many steps from now on; at least 1. From the trainer's thread.
  void set_logging_steps(int64_t steps) { options_.logging_steps = steps; }
  /// What the progress line shows; after the first step.
  const ProgressFigures& figures() const { return figures_; }
  /// Adds a sink that gets every later record.
  void add_sink(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }

 private:
  /// Sums over some steps.
  struct Sums {
    int64_t steps = 0, tokens = 0, samples = 0;
    double loss = 0, seconds = 0, flops = 0;
    /// A metric's sum over the steps that have it, and how many these are.
    struct Metric {
      std::string name;
      double sum = 0;
      int64_t steps = 0;
    };
    std::vector<Metric> metrics;
    void add(const StepReport& report);
  };
  bool due(const StepReport& report) const;
  void tell_span(const StepReport& report);
  Record training_record(const StepReport& report) const;
  Record summary_record() const;
  void log(const Record& record);
  /// A sink that cannot write is told of once, and gets no more.
  void to_sinks(const std::function<void(MetricsSink&)>& body);
  /// False, after a warning, where it cannot be written.
  static bool try_to_write(const char* what, const std::function<void()>& body);
  ProgressFigures figures(const StepReport& report) const;

  MonitorOptions options_;
  Clocks clocks_;
  TrainerState state_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  std::optional<EventFile> events_;  // empty once it could not be written
  std::optional<RankFile> ranks_;    // likewise
  std::unique_ptr<Spans> spans_;     // likewise
  Progress progress_;
  // Over time spent in steps: an evaluation between two of them does not count.
  WindowedRate steps_rate_, tokens_rate_, flops_rate_, data_wait_rate_, communication_wait_rate_;
  Sums since_log_, run_;
  double roofline_s_ = 0;
  double begun_ = 0;         // steady clock: when the first step began
  ProgressFigures figures_;  // of the last step
  bool finished_ = false;
};

}  // namespace lockstep::monitor
