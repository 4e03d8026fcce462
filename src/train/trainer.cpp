#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "base/clock.h"
#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "data/loader.h"
#include "model/operations.h"
#include "monitor/memory.h"
#include "monitor/monitor.h"
#include "optim/schedule.h"
#include "parallel/captured_training.h"
#include "parallel/parallel_model.h"
#include "train/checkpointing.h"
#include "train/evaluate.h"
#include "train/inputs.h"
#include "train/job.h"
#include "train/out_of_memory.h"
#include "train/run_length.h"
#include "train/stop_signal.h"
#include "train/trace.h"

namespace lockstep::train {
namespace {

constexpr int64_t kTracedStep = 3;  // of the run

/// What the ranks tell each other once a step.
struct StepCounts {
  objective::Counts step;   // what the loss is divided by
  int64_t tokens = 0;       // tokens that were read
  int64_t stop = 0;         // ranks that were asked to stop
  int64_t save = 0;         // ranks that were asked to save
  int64_t failed = 0;       // ranks whose save in the background failed
  int64_t peak_memory = 0;  // bytes, of the rank that uses most
  bool alike = true;        // all ranks have micro-batches of the same shapes
};

/// What the shapes of a rank's micro-batches follow from, as a number that a double holds.
int64_t shapes_of(std::span<const nn::ForwardInputs> inputs) {
  uint64_t key = inputs.size();
  for (const nn::ForwardInputs& rows : inputs) {
    for (const int64_t size : rows.ids.sizes()) {
      key = derive_key(key, static_cast<uint64_t>(size));
    }
    key = derive_key(key, rows.source.defined() ? static_cast<uint64_t>(rows.source.size(1)) : 0);
  }
  return static_cast<int64_t>(key >> 12);
}

/// Throws what is being handled with the rank's memory by kind, where that ran out.
void throw_with_memory(parallel::ParallelModel& model, int rank) {
  if (const auto error = current_out_of_memory()) {
    throw Error(
        error->kind(),
        fmt::format(
            "{}\nthe memory of rank {} until then:\n{}",
            error->message(),
            rank,
            parallel::memory_table(model.memory().phases())),
        error->remedy());
  }
}

class Trainer {
 public:
  Trainer(
      Job& job,
      World& world,
      SaveSignals& save_signals,
      const std::function<void(int64_t)>& on_step,
      const std::filesystem::path& trace)
      : job_(job),
        world_(world),
        config_(job.config.training),
        on_step_(on_step),
        trace_(trace),
        traced_step_(std::min(job.progress.step + kTracedStep, job.length.total_steps)),
        save_signals_(save_signals) {
    if (job.config.parallel.cuda_graphs == "auto") {
      const std::string obstacle = world.ranks_are_threads && world.device.is_cuda()
                                       ? "ranks are threads of one process"
                                   : job.datasets.train->has_documents()
                                       ? "rows hold documents of other lengths in every step"
                                       : parallel::CapturedTraining::obstacle(*job.model);
      captures_ = obstacle.empty();
      if (!captures_ && world.is_first()) {
        log_info("steps are not captured in CUDA graphs: {}", obstacle);
      }
    }
  }

  int run() {
    if (job_.progress.step >= job_.length.total_steps) {
      log_info("all {} steps are done already", job_.length.total_steps);
    } else if (config_.eval_on_start) {
      evaluate_now();
    }
    int exit = 0;
    if (stops_early()) {
      log_info("early stopping had ended the run after step {}", job_.progress.step);
    }
    while (exit == 0 && job_.progress.step < job_.length.total_steps && !stops_early()) {
      exit = one_step();
    }
    return exit;
  }

  void tell_of_saves() const {
    if (world_.is_first() && saves_ > 0) {
      log_info(
          "training waited {:.3g} s for {} checkpoint{}{}",
          save_seconds_,
          saves_,
          saves_ == 1 ? "" : "s",
          job_.saver != nullptr ? ", written in the background" : "");
    }
  }

  void compare_with(const Forecast& forecast) const {
    if (!step_seconds_.empty()) {
      log_info("{}", compare(forecast, step_seconds_, peak_memory_));
    }
  }

 private:
  int one_step();
  StepCounts agree(std::span<const nn::ForwardInputs> inputs);
  /// Loss, gradients and update; `trace` may be null.
  void compute(
      std::span<const nn::ForwardInputs> inputs, const StepCounts& counts, StepTrace* trace);
  int64_t peak_memory_here();
  void report(const StepCounts& counts, const data::StepBatch& batch, double began);
  void log_memory();
  void evaluate_now();
  bool evaluation_is_due(bool epoch_ends) const;
  bool stops_early() const { return job_.best_rule.stops(job_.best); }
  void tell_of_early_stop() const;
  void save(bool goes_on);

  Job& job_;
  World& world_;
  const config::TrainingSection& config_;
  const std::function<void(int64_t)>& on_step_;
  const std::filesystem::path& trace_;
  const int64_t traced_step_;  // the first steps of a run are not like the others
  StopSignal stop_;
  SaveSignals& save_signals_;
  bool captures_ = false;                                 // steps that fit captured_
  std::unique_ptr<parallel::CapturedTraining> captured_;  // of the first step's shapes
  double learning_rate_ = 0;
  double save_seconds_ = 0;  // that this rank did not train
  int64_t saves_ = 0;
  parallel::StepResult result_;
  double data_waited_ = 0, communication_waited_ = 0;  // before this step
  std::vector<double> step_seconds_;                   // rank 0's
  double peak_memory_ = 0;                             // bytes, of the rank that uses most
  int64_t peak_here_ = 0;                              // bytes, of this rank
};

StepCounts Trainer::agree(std::span<const nn::ForwardInputs> inputs) {
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
  mine.failed = job_.saver != nullptr && job_.saver->failed() ? 1 : 0;
  mine.peak_memory = peak_memory_here();
  constexpr int64_t kOurs = 6;
  const int64_t shapes = shapes_of(inputs);
  const at::Tensor ours = at::tensor(
      {mine.tokens, mine.stop, mine.peak_memory, mine.save, mine.failed, shapes}, at::kDouble);
  const at::Tensor own = at::cat({ours, at::tensor(mine.step.values(), at::kDouble)});
  const at::Tensor all = at::empty({world_.size(), own.numel()}, at::kDouble);
  world_.communicator.all_gather(all, own).wait();
  StepCounts counts;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto* row = all[rank].const_data_ptr<double>();
    // Ranks of one data coordinate share a batch: its first one tells of it.
    const mesh::Coordinate at = job_.axes->mesh().coordinate(rank);
    if (at == mesh::Coordinate{.data = at.data}) {
      counts.tokens += static_cast<int64_t>(row[0]);
      counts.step += objective::Counts({row + kOurs, row + own.numel()});
    }
    counts.stop += static_cast<int64_t>(row[1]);
    counts.peak_memory = std::max(counts.peak_memory, static_cast<int64_t>(row[2]));
    counts.save += static_cast<int64_t>(row[3]);
    counts.failed += static_cast<int64_t>(row[4]);
    counts.alike = counts.alike && static_cast<int64_t>(row[5]) == shapes;
  }
  return counts;
}

int64_t Trainer::peak_memory_here() {
  // The allocator's own peak is of the last phase alone: the account asks it anew for each.
  const int64_t here = world_.device.is_cpu() ? monitor::process_memory().peak_resident_bytes
                                              : parallel::most_of(job_.model->memory().phases());
  return peak_here_ = std::max(peak_here_, here);
}

void Trainer::compute(
    std::span<const nn::ForwardInputs> inputs, const StepCounts& counts, StepTrace* trace) {
  // A graph holds the kernels of collectives: all ranks replay it, or none.
  const bool captures = captures_ && counts.alike;
  if (captures && captured_ == nullptr) {
    captured_ = std::make_unique<parallel::CapturedTraining>(*job_.model, inputs);
  }
  // A graph leaves no marks.
  if (captures && trace == nullptr && captured_->fits(inputs)) {
    result_ = captured_->run(inputs, counts.step, learning_rate_);
    return;
  }
  result_ = job_.model->forward_backward(inputs, counts.step);
  const double updating = seconds_now();
  job_.model->optimizer_step(learning_rate_);
  if (trace != nullptr) {
    trace->mark("optimizer", updating);
  }
}

int Trainer::one_step() {
  const double began = seconds_now();
  data_waited_ = job_.loader->waited_seconds();
  communication_waited_ = job_.axes->seconds_waited();
  if (on_step_) {
    on_step_(job_.progress.step + 1);
  }
  std::optional<StepTrace> trace;
  if (!trace_.empty() && job_.progress.step + 1 == traced_step_) {
    trace.emplace(*job_.model, *job_.axes, world_);
  }
  const double reading = seconds_now();
  const data::StepBatch batch = job_.loader->next();
  if (trace) {
    trace->mark("next batch", reading);
  }
  std::vector<nn::ForwardInputs> inputs;
  for (const data::MicroBatch& micro_batch : batch.micro_batches) {
    inputs.push_back(to_inputs(micro_batch));
    if (job_.mark_targets) {
      job_.mark_targets(inputs.back(), micro_batch);
    }
    inputs.back().seed = static_cast<uint64_t>(config_.seed);
    inputs.back().step = job_.progress.step;
    inputs.back().training = job_.drops_out;
  }
  const StepCounts counts = agree(inputs);
  if (counts.failed > 0) {
    wait_for_save(job_);  // a save fails on all ranks
  }
  if (job_.task.reference != nullptr) {
    job_.task.reference->refer(inputs);
  }
  if (job_.answer_reference != nullptr) {
    job_.answer_reference->refer_step(inputs, batch.micro_batches);
  }
  for (nn::ForwardInputs& rows : inputs) {
    rows = to_device(rows, world_.device);
  }
  learning_rate_ = job_.schedule->learning_rate(job_.progress.step);
  in_context(fmt::format("training step {}", job_.progress.step + 1), [&] {
    try {
      compute(inputs, counts, trace ? &*trace : nullptr);
    } catch (const std::exception&) {
      throw_with_memory(*job_.model, world_.rank());
      throw;
    }
  });
  if (trace) {
    trace->write(trace_);
  }

  Progress& progress = job_.progress;
  ++progress.step;
  progress.tokens += counts.tokens;
  progress.sampler = batch.after;
  progress.epoch = batch.epoch;
  const bool epoch_ends = batch.after.position == 0;
  report(counts, batch, began);
  log_memory();
  if (evaluation_is_due(epoch_ends)) {
    evaluate_now();
  }
  const bool last = progress.step == job_.length.total_steps || stops_early();
  if (stops_early()) {
    tell_of_early_stop();
  }
  const bool stopping = counts.stop > 0;
  const bool wanted =
      is_due(config_.save_strategy, job_.length.save_steps, progress.step, epoch_ends) ||
      (last && config_.save_strategy != "no") ||
      (config_.save_strategy == "best" && job_.best.step == progress.step);
  if (wanted || stopping || counts.save > 0) {
    save(/*goes_on=*/!stopping && !last);
  } else if (const int64_t every = job_.config.checkpoint.compare_replicas;
             every > 0 && progress.step % every == 0) {
    job_.model->compare_replicas();
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
  if (job_.answer_reference != nullptr) {
    report.metrics = job_.model->objective().report(result_.sums).metrics;
  }
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
  job_.monitor->step(report);
}

void Trainer::log_memory() {
  // Every rank knows which steps are logged.
  const int64_t step = job_.progress.step, every = job_.length.logging_steps;
  const bool is_logged = (every > 0 && step % every == 0) || step == job_.length.total_steps ||
                         (step == 1 && config_.logging_first_step);
  if (!job_.config.monitor.log_memory || !is_logged) {
    return;
  }
  parallel::MemoryAccount& memory = job_.model->memory();
  const at::Tensor mine = at::tensor(memory.numbers(), at::kLong);
  const at::Tensor all = at::empty({world_.size(), parallel::MemoryAccount::kNumbers}, at::kLong);
  world_.communicator.all_gather(all, mine).wait();
  memory.forget();
  if (!world_.is_first()) {
    return;
  }
  int fullest = 0;
  std::vector<std::array<parallel::PhaseMemory, parallel::kMemoryPhases>> ranks;
  for (int rank = 0; rank < world_.size(); ++rank) {
    ranks.push_back(parallel::MemoryAccount::from_numbers(
        {all.const_data_ptr<int64_t>() + rank * parallel::MemoryAccount::kNumbers,
         static_cast<size_t>(parallel::MemoryAccount::kNumbers)}));
    fullest =
        parallel::most_of(ranks.back()) > parallel::most_of(ranks[static_cast<size_t>(fullest)])
            ? rank
            : fullest;
  }
  log_info(
      "memory of rank {}{}, by kind:\n{}",
      fullest,
      world_.size() > 1 ? fmt::format(", the fullest of {}", world_.size()) : "",
      parallel::memory_table(ranks[static_cast<size_t>(fullest)]));
}

bool Trainer::evaluation_is_due(bool epoch_ends) const {
  const auto at = config_.eval_strategy == "epoch" ? job_.progress.epoch
                                                   : static_cast<double>(job_.progress.step);
  return job_.datasets.validation != nullptr && at >= config_.eval_delay &&
         is_due(config_.eval_strategy, job_.length.eval_steps, job_.progress.step, epoch_ends);
}

void Trainer::evaluate_now() {
  job_.evaluate_training(world_);
}

void Trainer::tell_of_early_stop() const {
  if (world_.is_first()) {
    log_info(
        "stopping early after step {}: {} evaluations were no better than eval_{} {:.5g} of step "
        "{}",
        job_.progress.step,
        job_.best.no_better,
        job_.best_rule.metric(),
        job_.best.metric.value_or(0),
        job_.best.step);
  }
}

void Trainer::save(bool goes_on) {
  if (job_.monitor != nullptr) {
    job_.monitor->activity(fmt::format("saving checkpoint-{}", job_.progress.step));
  }
  const double began = seconds_now();
  save_training_state(job_, world_, goes_on);
  save_seconds_ += seconds_now() - began;
  ++saves_;
}

}  // namespace

int run_training(
    const config::Config& config,
    const std::string& resolved,
    World& world,
    const std::function<void(int64_t step)>& on_step,
    const ForecastOptions& forecast_options,
    const std::filesystem::path& trace) {
  SaveSignals save_signals(config.checkpoint);  // from the start: they would end the process
  const auto job = open_job(config, resolved, world);
  std::optional<Forecast> forecast = make_forecast(
      config,
      model::with_head(job->source.config, job->task.head),
      world,
      forecast_options,
      job->datasets.train.get());
  build_job(*job, world);
  if (forecast) {
    forecast->bytes += world.device.is_cpu() ? static_cast<double>(job->snapshot_bytes) : 0;
    log_info("{}", describe(*forecast));
  }
  Trainer trainer(*job, world, save_signals, on_step, trace);
  const int exit = trainer.run();
  trainer.tell_of_saves();
  if (forecast) {
    trainer.compare_with(*forecast);
  }
  if (exit == kExitPreempted) {
    if (world.is_first()) {
      log_warning(
          "stopped by a signal after step {}; go on with training.resume_from_checkpoint=true",
          job->progress.step);
    }
    return exit;
  }
  finish_job(*job, world);
  return exit;
}

}  // namespace lockstep::train
