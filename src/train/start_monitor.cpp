// Creates the monitor of a run.
#include "train/start_monitor.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/file.h"
#include "config/core/schema.h"
#include "config/core/yaml.h"
#include "train/machine/peak.h"
#include "train/plan.h"

namespace lockstep::train {
namespace {

monitor::MonitorOptions monitor_options(const Job& job, const RankContext& rank_context) {
  const config::TrainingSection& training = job.config.training;
  monitor::MonitorOptions options;
  options.output_dir = training.output_dir;
  options.logging_strategy = training.logging_strategy == "no" ? monitor::LoggingStrategy::kNo
                             : training.logging_strategy == "epoch"
                                 ? monitor::LoggingStrategy::kEpoch
                                 : monitor::LoggingStrategy::kSteps;
  options.logging_steps = job.length.logging_steps;
  options.logging_first_step = training.logging_first_step;
  options.total_steps = job.length.total_steps;
  options.peak_flops = job.config.monitor.peak_tflops.value_or(0) * 1e12 * rank_context.size();
  options.report_to = training.report_to;
  options.run_name = training.run_name.value_or("");
  options.project = training.project;
  options.logging_dir = training.logging_dir.value_or("");
  options.wandb_ranks = job.config.monitor.wandb_ranks;
  options.otlp = job.config.monitor.otlp;
  // Use the saved configuration, in which values of secret variables are hidden.
  options.configuration_json =
      config::to_json_text(config::parse_yaml(job.resolved, "the configuration"));
  const std::string& style = job.config.monitor.progress;
  using Style = monitor::Progress::Style;
  options.progress = style == "none"                                     ? Style::kSilent
                     : style == "json"                                   ? Style::kJson
                     : style == "rich"                                   ? Style::kRich
                     : style == "bar" || style == "line"                 ? Style::kBar
                     : style == "plain" || training.disable_tqdm == true ? Style::kPlain
                                                                         : Style::kAuto;
  return options;
}

}  // namespace

void start_monitor(
    Job& job, RankContext& rank_context, std::optional<monitor::TrainerState> resumed) {
  on_first_rank(rank_context.communicator, [&] {
    const config::TrainingSection& training = job.config.training;
    create_folders(training.output_dir);
    write_file_atomically(std::filesystem::path(training.output_dir) / "config.yaml", job.resolved);
    job.monitor =
        std::make_unique<monitor::Monitor>(monitor_options(job, rank_context), std::move(resumed));
    monitor::TrainerState& state = job.monitor->state();
    state.max_steps = job.length.total_steps;
    state.num_train_epochs = std::ceil(job.length.epochs);
    state.logging_steps = static_cast<double>(job.length.logging_steps);
    state.eval_steps = static_cast<double>(job.length.eval_steps);
    state.save_steps = static_cast<double>(job.length.save_steps);
    state.train_batch_size = training.per_device_train_batch_size;
    return "";
  });
}

void measure_peak_of_run(Job& job, RankContext& rank_context) {
  if (job.config.monitor.peak_tflops) {
    return;
  }
  const double peak = measure_peak(
      rank_context.communicator, rank_context.device, compute_type(job.config.training));
  if (job.monitor != nullptr) {
    job.monitor->set_peak_flops(peak);
  }
}

}  // namespace lockstep::train
