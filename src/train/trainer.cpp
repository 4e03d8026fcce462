// Implements the training loop.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/rank_status.h"
#include "comm/moving.h"
#include "data/loader.h"
#include "monitor/monitor.h"
#include "optim/schedule.h"
#include "parallel/captured_training.h"
#include "parallel/parallel_model.h"
#include "train/batches/inputs.h"
#include "train/best_checkpoint.h"
#include "train/checkpointing.h"
#include "train/committed_saves.h"
#include "train/evaluate.h"
#include "train/evaluation_line.h"
#include "train/first_update.h"
#include "train/histograms.h"
#include "train/in_memory_steps.h"
#include "train/interruption.h"
#include "train/job.h"
#include "train/live_page.h"
#include "train/machine/measuring.h"
#include "train/machine/trace.h"
#include "train/paired_data.h"
#include "train/rank_places.h"
#include "train/rank_times.h"
#include "train/run_length.h"
#include "train/run_record.h"
#include "train/start_monitor.h"
#include "train/steering.h"
#include "train/step_counts.h"
#include "train/step_guard.h"
#include "train/stop_signal.h"
#include "train/time_account.h"
#include "train/training_inputs.h"
#include "train/unlearning_evaluation.h"

namespace lockstep::train {
namespace {

constexpr int64_t kTracedStep = 3;  // step of the run

class Trainer {
 public:
  Trainer(
      Job& job,
      RankContext& rank_context,
      SaveSignals& save_signals,
      const std::function<void(int64_t)>& on_step,
      const std::filesystem::path& trace,
      int64_t last_step,
      bool measures)
      : job_(job),
        rank_context_(rank_context),
        config_(job.config.training),
        on_step_(on_step),
        trace_(trace),
        traced_step_(std::min(job.progress.step + kTracedStep, job.length.total_steps)),
        last_step_(
            last_step > 0 ? std::min(last_step, job.length.total_steps) : job.length.total_steps),
        rank_times_(*job.axes),
        histograms_(job, rank_context),
        stop_(rank_context.is_first() ? StopSignal::Reply::kLog : StopSignal::Reply::kNone),
        save_signals_(save_signals),
        interruption_(rank_context.communicator, stop_, save_signals),
        saved_step_(job.resume_from ? job.progress.step : -1),
        saved_folder_(job.resume_from.value_or("")),
        steering_(job, rank_context),
        measuring_(rank_context, measures) {
    job.interruption = &interruption_;
    if (job.config.parallel.cuda_graphs == "auto") {
      const std::string obstacle = config_.replay_spikes ? "training.replay_spikes is on"
                                   : rank_context.ranks_are_threads && rank_context.device.is_cuda()
                                       ? "ranks are threads of one process"
                                   : config_.neftune_noise_alpha.value_or(0) > 0
                                       ? "the noise of neftune_noise_alpha uses keys of the host"
                                   : job.datasets.train->packing() == data::Packing::kDocuments
                                       ? "rows contain documents of different lengths in every step"
                                       : parallel::CapturedTraining::obstacle(*job.model);
      captures_ = obstacle.empty();
      if (!captures_ && rank_context.is_first()) {
        log_info("steps are not captured in CUDA graphs: {}", obstacle);
      }
    }
  }

  ~Trainer() { job_.interruption = nullptr; }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  int run() {
    const bool is_done = job_.progress.step >= job_.length.total_steps;
    if (is_done) {
      log_info("all {} steps are already done", job_.length.total_steps);
    }
    const bool owes = job_.progress.owes_evaluation && job_.can_evaluate();
    int exit = owes || (config_.eval_on_start && !is_done) ? evaluate_first(/*trains=*/owes) : 0;
    if (exit == 0 && stops_early()) {
      log_info("early stopping ended the run after step {}", job_.progress.step);
    }
    time_.begin(process_seconds());
    began_ = seconds_now();
    const int64_t first = job_.progress.step;
    while (exit == 0 && job_.progress.step < last_step_ && !stops_early()) {
      exit = one_step();
    }
    if (job_.progress.step > first) {
      rank_times_.end_run(rank_context_.communicator, job_.progress.step, job_.monitor.get());
    }
    committed_.wait();
    if (exit == 0) {
      measuring_.finish();
    }
    if (job_.monitor != nullptr) {
      job_.monitor->end_steps();
    }
    return exit;
  }

  /// Completes the run. Returns an exit code as run(): a signal can end the final evaluations.
  int finish();

  void tell_of_saves() const { train::tell_of_saves(job_, save_seconds_, saves_); }

  /// Logs and records on rank 0 how much time this attempt spent on each activity.
  void tell_of_time() const { train::tell_of_time(job_, time_, process_seconds()); }

  void compare_with(const Forecast& forecast) {
    if (!step_seconds_.empty()) {
      // The other ranks do not know this rank's memory in the last step.
      const auto here = static_cast<double>(peak_memory_here());
      const double peak = std::max(peak_memory_, here);
      const double step = typical_seconds(step_seconds_);
      log_debug("{}", compare(forecast, step, peak));
      record_measured(job_, forecast, step, peak);
    }
  }

  /// Returns which request stopped run().
  const std::string& stopped_by() const { return stopped_by_; }

 private:
  int one_step();
  /// Returns the trace file of the next step. Empty: the step is not traced.
  std::filesystem::path next_trace();
  /// Starts the exchange of this rank's counts of the step.
  void begin_to_agree(std::span<const nn::ForwardInputs> inputs);
  /// Returns the counts of all ranks. The first call in a step waits for the other ranks and
  /// applies this step's commands.
  const StepCounts& synced_counts();
  /// Computes loss, gradients and update. `trace` may be null.
  void compute(std::span<const nn::ForwardInputs> inputs, StepTrace* trace);
  int64_t peak_memory_here() {
    return peak_here_ = std::max(peak_here_, peak_memory_of_phase(job_, rank_context_));
  }
  void report(const StepCounts& counts, const data::StepBatch& batch, double began);
  /// Evaluates; without `trains`, the schedule and the best model are not affected. Returns the
  /// request of a signal that ended the evaluation.
  SaveSignals::Asked evaluate_now(bool trains);
  /// Evaluates a state that is saved, or that no step has changed. Returns an exit code as run().
  int evaluate_first(bool trains);
  bool stops_early() const { return job_.best_rule.stops(job_.best); }
  void save(bool goes_on);

  Job& job_;
  RankContext& rank_context_;
  const config::TrainingSection& config_;
  const std::function<void(int64_t)>& on_step_;
  const std::filesystem::path& trace_;
  int64_t traces_left_ = 0;    // requested during the run
  const int64_t traced_step_;  // the first steps of a run are not representative
  const int64_t last_step_;
  std::optional<StepCounts> counts_;      // of this step; empty until received
  at::Tensor own_numbers_, all_numbers_;  // float64: [numbers] of this rank, [ranks, numbers]
  comm::Pending agreement_;
  TimeAccount time_;
  RankTimes rank_times_;
  Histograms histograms_;
  StepGuard guard_;
  FirstUpdate first_update_;
  GuardedStep guarded_;  // last step, unless it was a CUDA graph
  StopSignal stop_;
  SaveSignals& save_signals_;
  Interruption interruption_;
  int64_t saved_step_;  // step of the last checkpoint; -1: none
  std::filesystem::path saved_folder_;
  Steering steering_;
  CommittedSaves committed_{job_, steering_};
  MeasuringBetweenSteps measuring_;
  double began_ = 0;       // start of the first step
  bool has_peak_ = false;  // peak rate for MFU is known
  std::string stopped_by_ = "a signal";
  std::string evaluated_;  // line about the last evaluation
  bool captures_ = false;  // use CUDA graphs for steps that match captured_
  std::unique_ptr<parallel::CapturedTraining> captured_;  // graph with the shapes of the first step
  double learning_rate_ = 0;
  double save_seconds_ = 0;  // time in which this rank did not train
  int64_t saves_ = 0;
  parallel::StepResult result_;
  double data_waited_ = 0, communication_waited_ = 0, moved_ = 0;  // totals before this step
  std::vector<double> step_seconds_;                               // on rank 0
  double peak_memory_ = 0;                                         // bytes, maximum over the ranks
  int64_t peak_here_ = 0;                                          // bytes, of this rank
};

std::filesystem::path Trainer::next_trace() {
  const int64_t step = job_.progress.step + 1;
  if (!trace_.empty() && step == traced_step_) {
    return trace_;
  }
  if (traces_left_ > 0) {
    --traces_left_;
    return std::filesystem::path(config_.output_dir) / fmt::format("trace-{}.json", step);
  }
  return {};
}

void Trainer::begin_to_agree(std::span<const nn::ForwardInputs> inputs) {
  counts_.reset();
  StepCounts mine;
  for (const nn::ForwardInputs& rows : inputs) {
    mine.step += job_.model->objective().counts(rows.targets);
    if (rows.targets.counts.any().item<bool>()) {
      mine.tokens += rows.ids.numel() + (rows.source.defined() ? rows.source.numel() : 0);
    }
  }
  const SaveSignals::Asked asked = save_signals_.take();
  mine.stop = stop_.requested() || asked == SaveSignals::Asked::kSaveAndStop ? 1 : 0;
  mine.save = asked == SaveSignals::Asked::kSave ? 1 : 0;
  mine.acts = steering_.take();
  mine.failed = job_.saver != nullptr && job_.saver->failed() ? 1 : 0;
  mine.peak_memory = peak_memory_here();
  mine.measure = measuring_.is_due(seconds_now() - began_) ? 1 : 0;
  mine.shapes = shapes_of(inputs);
  own_numbers_ = numbers_of(mine, rank_times_);
  all_numbers_ = at::empty({rank_context_.size(), own_numbers_.numel()}, at::kDouble);
  agreement_ = rank_context_.communicator.all_gather(all_numbers_, own_numbers_);
  agreement_.set_name("the step's counts");
}

const StepCounts& Trainer::synced_counts() {
  if (!counts_) {
    agreement_.wait();
    counts_ = sum_of_ranks(all_numbers_, own_numbers_, *job_.axes);
    for (int rank = 0; rank_context_.is_first() && rank < rank_context_.size(); ++rank) {
      rank_times_.take(
          rank, rank_context_.size(), job_.progress.step, times_in(all_numbers_[rank]));
    }
    steering_.begin_step(counts_->acts);
    traces_left_ = std::max(traces_left_, counts_->acts.traced_steps);
  }
  return *counts_;
}

void Trainer::compute(std::span<const nn::ForwardInputs> inputs, StepTrace* trace) {
  // Graphs contain collectives, so all ranks or none must replay one.
  const bool captures = captures_ && synced_counts().alike;
  const bool counts_values = histograms_.is_due(job_.progress.step + 1);
  if (captures && captured_ == nullptr) {
    captured_ = std::make_unique<parallel::CapturedTraining>(*job_.model, inputs);
  }
  // A graph provides neither trace events nor the gradients before the update.
  if (captures && trace == nullptr && !counts_values && captured_->fits(inputs)) {
    learning_rate_ = job_.schedule->learning_rate(job_.progress.step);
    before_state_update(job_);
    result_ = captured_->run(inputs, synced_counts().step, learning_rate_);
    guarded_ = {};
    return;
  }
  guarded_ = guard_.run(
      [&] {
        return job_.model->forward_backward(inputs, [this]() -> const objective::Counts& {
          const bool averages_ranks = job_.model->plan().loss_mean == parallel::LossMean::kOfRanks;
          return averages_ranks ? synced_counts().shared : synced_counts().step;
        });
      },
      config_.replay_spikes,
      rank_context_.communicator);
  result_ = guarded_.result;
  if (counts_values && !result_.overflowed) {
    histograms_.count_gradients();
  }
  learning_rate_ = job_.schedule->learning_rate(job_.progress.step);
  const double updating = seconds_now();
  begin_phase("the optimizer");
  before_state_update(job_);
  save_seconds_ += seconds_now() - updating;
  job_.model->optimizer_step(learning_rate_);
  if (trace != nullptr) {
    trace->mark("optimizer", updating);
  }
  if (counts_values) {
    histograms_.count_weights();
  }
}

int Trainer::one_step() {
  const double began = seconds_now();
  data_waited_ = job_.loader->waited_seconds();
  communication_waited_ = job_.axes->seconds_waited();
  moved_ = comm::seconds_moving();
  if (on_step_) {
    on_step_(job_.progress.step + 1);
  }
  std::optional<StepTrace> trace;
  const std::filesystem::path trace_file = next_trace();
  if (!trace_file.empty()) {
    trace.emplace(*job_.model, *job_.axes, rank_context_);
  }
  const double reading = seconds_now();
  begin_phase("waiting for data");
  const data::StepBatch batch = job_.loader->next();
  if (trace) {
    trace->mark("next batch", reading);
  }
  std::vector<nn::ForwardInputs> inputs = training_inputs(job_, batch.micro_batches);
  begin_phase("exchanging step counts");
  begin_to_agree(inputs);
  begin_phase("forward and backward");
  if (job_.task.reference != nullptr) {
    job_.task.reference->refer(inputs);
  }
  if (job_.answer_reference != nullptr) {
    job_.answer_reference->refer_step(inputs, batch.micro_batches);
  }
  std::ranges::for_each(inputs, [&](auto& rows) { rows = to_device(rows, rank_context_.device); });
  first_update_.begin(job_, job_.schedule->learning_rate(job_.progress.step));
  in_context(fmt::format("training step {}", job_.progress.step + 1), [&] {
    try {
      compute(inputs, trace ? &*trace : nullptr);
    } catch (const std::exception&) {
      throw_with_memory(job_, rank_context_.rank());
      throw;
    }
  });
  const StepCounts counts = synced_counts();
  if (counts.failed > 0) {
    wait_for_save(job_);  // a failed save throws on all ranks
  }
  if (trace) {
    trace->write(trace_file);
  }
  Progress& progress = job_.progress;
  ++progress.step;
  progress.tokens += counts.tokens;
  progress.sampler = batch.after;
  progress.epoch = batch.epoch;
  const bool epoch_ends = batch.after.position == 0;
  begin_phase("reporting the step");
  const double ended = seconds_now();
  const double for_data = job_.loader->waited_seconds() - data_waited_;
  const double for_ranks = job_.axes->seconds_waited() - communication_waited_;
  time_.add(TimeAccount::Use::kSteps, ended - began);
  time_.add_waits(for_data, for_ranks);
  const parallel::MemoryByKind fullest = parallel::fullest_of(job_.model->memory().phases());
  const double moved = comm::seconds_moving() - moved_;
  rank_times_.end_step(ended - began, for_data, for_ranks, moved, fullest);
  follow_retain_loss(job_, result_, epoch_ends, rank_context_);
  count_rows(job_, result_, batch);
  const std::optional<Spikes::Spike> spike = guard_.observe(result_);
  wait_for_in_memory_step(job_);  // at most one logged step can be lost
  report(counts, batch, began);
  if (!std::exchange(has_peak_, true)) {
    measure_peak_of_run(job_, rank_context_);
  }
  histograms_.tell();
  report_gradient(job_, result_);
  first_update_.end(job_, result_, learning_rate_, rank_context_);
  tell_of_repeat(job_, guarded_);
  tell_of_spike(job_, spike);
  log_memory(job_, rank_context_);
  using Asked = SaveSignals::Asked;
  const bool run_ends = progress.step == job_.length.total_steps;
  const bool evaluates = job_.evaluation_is_due({progress.step, epoch_ends, run_ends});
  Asked asked = counts.stop > 0 ? Asked::kSaveAndStop : Asked::kNothing;
  if (asked == Asked::kNothing && (evaluates || counts.acts.evaluate)) {
    asked = evaluate_now(/*trains=*/evaluates);
  }
  const bool owes = progress.owes_evaluation = evaluates && asked != Asked::kNothing;
  if (epoch_ends && !owes) {
    end_epoch(job_, evaluates);
  }
  const bool ends_early = !owes && stops_early();
  const bool last = !owes && (run_ends || ends_early);
  if (ends_early) {
    tell_of_early_stop(job_);
  }
  const bool stopping = asked == Asked::kSaveAndStop;
  const StepEnd end{progress.step, epoch_ends || ends_early, run_ends};
  const bool wanted = is_due(config_.save_strategy, job_.length.save_steps, end) ||
                      (config_.save_strategy == "best" && job_.best.step == progress.step);
  const bool saves = wanted || asked != Asked::kNothing || counts.save > 0;
  if (saves) {
    save(/*goes_on=*/!stopping && !last);
  } else if (const int64_t every = job_.config.checkpoint.compare_replicas;
             every > 0 && progress.step % every == 0) {
    begin_phase("comparing replicas");
    const double comparing = seconds_now();
    job_.model->compare_replicas();
    time_.add(TimeAccount::Use::kComparing, seconds_now() - comparing);
    tell_of_comparison(job_, seconds_now() - comparing);
  }
  time_.add(TimeAccount::Use::kSaving, keep_step(job_, rank_context_));
  steering_.publish();
  steering_.end_step(saves, committed_.is_saving(), evaluated_);
  committed_.poll();
  if (counts.measure > 0 && !stopping) {
    measuring_.measure();
  }
  stopped_by_ = counts.acts.stop ? "lockstep ctl" : "a signal";
  if (owes && !stopping) {
    return evaluate_first(/*trains=*/true);
  }
  return stopping && !last ? kExitPreempted : 0;
}

void Trainer::report(const StepCounts& counts, const data::StepBatch& batch, double began) {
  if (job_.monitor == nullptr) {
    return;
  }
  monitor::StepReport report;
  report.step = job_.progress.step;
  report.epoch = job_.progress.epoch;
  report.loss = result_.loss;
  report.learning_rate = learning_rate_;
  if (!result_.overflowed) {
    report.grad_norm = result_.gradient_norm;
  }
  report.metrics = step_metrics(job_, result_, batch);
  report.tokens = counts.tokens;
  report.samples = batch.samples;
  report.flops = static_cast<double>(counts.tokens) * job_.flops_per_token;
  report.step_s = seconds_now() - began;
  step_seconds_.push_back(report.step_s);
  peak_memory_ = static_cast<double>(counts.peak_memory);
  report.data_wait_s = job_.loader->waited_seconds() - data_waited_;
  report.communication_wait_s = job_.axes->seconds_waited() - communication_waited_;
  report.peak_memory_bytes = counts.peak_memory;
  report.epoch_ends = batch.after.position == 0;
  if (job_.monitor->step(report)) {
    rank_times_.tell(*job_.monitor);
  }
}

SaveSignals::Asked Trainer::evaluate_now(bool trains) {
  const double began = seconds_now();
  const auto asked = interrupted_by([&] {
    evaluated_ = trains ? job_.evaluate_training(rank_context_)
                        : print_evaluation(job_, job_.evaluate_by_the_way(rank_context_), "eval");
  });
  time_.add(TimeAccount::Use::kEvaluating, seconds_now() - began);
  return asked;
}

int Trainer::evaluate_first(bool trains) {
  auto asked = SaveSignals::Asked::kSave;
  while (asked == SaveSignals::Asked::kSave) {  // there is nothing to save
    asked = evaluate_now(trains);
  }
  if (trains && asked == SaveSignals::Asked::kNothing) {
    observe_save(job_, saved_folder_);
  }
  if (asked == SaveSignals::Asked::kSaveAndStop) {
    wait_for_save(job_);
    return kExitPreempted;
  }
  if (std::exchange(job_.progress.owes_evaluation, false) && job_.progress.sampler.position == 0) {
    end_epoch(job_, /*is_told=*/true);
  }
  return 0;
}

int Trainer::finish() {
  begin_phase("writing the final model");
  interruption_.ignore_saves();
  if (interrupted_by([&] { finish_job(job_, rank_context_); }) == SaveSignals::Asked::kNothing) {
    return 0;
  }
  if (saved_step_ != job_.progress.step) {
    job_.model->put_averages(false);
    save(/*goes_on=*/false);
  }
  return kExitPreempted;
}

void Trainer::save(bool goes_on) {
  if (job_.monitor != nullptr) {
    job_.monitor->activity(fmt::format("saving checkpoint-{}", job_.progress.step));
  }
  const double began = seconds_now(), waited = seconds_for_others(job_);
  begin_phase(fmt::format("saving checkpoint-{}", job_.progress.step));
  save_training_state(job_, rank_context_, goes_on);
  saved_step_ = job_.progress.step;
  saved_folder_ = checkpoint_folder(config_.output_dir, saved_step_);
  const double seconds = seconds_now() - began;
  rank_times_.end_save(seconds - (seconds_for_others(job_) - waited));
  save_seconds_ += seconds;
  time_.add(TimeAccount::Use::kSaving, seconds);
  ++saves_;
  committed_.end_save(seconds, goes_on);
}

/// Runs the job from its first step to its last file.
int train_job(
    Job& job,
    RankContext& rank_context,
    SaveSignals& save_signals,
    const RunOptions& options,
    const std::optional<Forecast>& forecast) {
  const bool measures = options.forecast.cluster.empty() &&
                        should_measure(job.config.monitor.measure_machine, rank_context);
  Trainer trainer(
      job, rank_context, save_signals, options.on_step, options.trace, options.last_step, measures);
  int exit = trainer.run();
  trainer.tell_of_saves();
  trainer.tell_of_time();
  if (forecast) {
    trainer.compare_with(*forecast);
  }
  if (options.last_step == 0 || job.progress.step >= job.length.total_steps) {
    exit = exit == 0 ? trainer.finish() : exit;
  } else if (exit == 0 && rank_context.is_first()) {  // a replayed run writes no final model
    job.monitor->event("stopped", {{"by", "lockstep replay"}});
  }
  if (exit == kExitPreempted) {
    tell_of_stop(job, trainer.stopped_by());
  }
  return exit;
}

}  // namespace

int run_training(
    const config::Config& config,
    const std::string& resolved,
    RankContext& rank_context,
    const RunOptions& options) {
  SaveSignals save_signals(
      config.checkpoint);  // installed first, because the default action would end the process
  if (RankStatus* const told = rank_status()) {
    told->set_limits(config.training.hang_report, config.training.hang_timeout);
  }
  begin_phase("reading data and model");
  const auto job = open_job(config, resolved, rank_context);
  std::optional<Forecast> forecast = make_forecast(
      config,
      model::with_head(job->source.config, job->task.head),
      rank_context,
      options.forecast,
      job->datasets.train.get());
  build_job(*job, rank_context);
  record_beginning(*job, rank_context, options.origins);
  record_forecast(*job, forecast);
  const RankPlaces places(*job, rank_context);
  if (forecast) {
    forecast->bytes += rank_context.device.is_cpu() ? static_cast<double>(job->snapshot_bytes) : 0;
    log_info("{}", describe(*forecast));
  }
  std::unique_ptr<LivePage> page;
  if (rank_context.is_first() && config.monitor.page) {
    page = std::make_unique<LivePage>(job->config.training.output_dir);
    log_info(
        "monitor page of the run, while it trains: its address is in {}", page->file().string());
  }
  try {
    return train_job(*job, rank_context, save_signals, options, forecast);
  } catch (const std::exception&) {
    record_failure(*job);
    throw;
  }
}

}  // namespace lockstep::train
