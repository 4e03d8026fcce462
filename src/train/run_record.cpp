// Writes the events and log lines of a run.
#include "train/run_record.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/redact.h"
#include "checkpoint/folders.h"
#include "model/description.h"
#include "monitor/memory.h"
#include "monitor/trackers.h"
#include "parallel/memory_account.h"
#include "train/checkpointing.h"
#include "train/machine/out_of_memory.h"
#include "train/run_identity.h"
#include "train/run_lines.h"
#include "train/weights/model_loading.h"

namespace lockstep::train {
namespace {

/// Returns the mesh and other settings that divide a step, such as "data 2, tensor 2, ZeRO 3".
std::string plan_text(const Job& job) {
  const config::ParallelSection& parallel = job.config.parallel;
  const mesh::Mesh& mesh = job.axes->mesh();
  std::vector<std::string> parts = axes_text(mesh);
  if (parallel.zero_stage > 0) {
    parts.push_back(fmt::format("ZeRO {}", parallel.zero_stage));
  }
  if (mesh.pipeline > 1) {
    parts.push_back(parallel.schedule);
  }
  return parts.empty() ? "one rank" : fmt::format("{}", fmt::join(parts, ", "));
}

/// Origins of the values that are not defaults.
nlohmann::ordered_json origins_json(const config::Origins& origins) {
  nlohmann::ordered_json places = nlohmann::ordered_json::object();
  for (const auto& [key, origin] : origins) {
    if (origin.source != config::Origin::Source::kDefault) {
      // A command line origin quotes the argument, which contains the secret.
      places[key] = origin.secret ? "hidden" : describe(origin);
    }
  }
  return places;
}

}  // namespace

void record_beginning(Job& job, const RankContext& rank_context, const config::Origins& origins) {
  using Json = nlohmann::ordered_json;
  if (job.monitor == nullptr) {
    return;
  }
  const auto stored = type_of_most_weights(job.source);
  const auto end = job.tokenizer->eos();
  job.monitor->event(
      "began",
      {{"model", job.source.name},
       {"initial_weights", job.source.has_weights ? "stored" : "random"},
       {"stored_type", stored ? Json(type_name(*stored)) : Json()},
       {"end_of_text", end ? Json(job.tokenizer->token(*end).value_or("")) : Json()},
       {"parameters", model::parameter_count(job.model->model().config())},
       {"precision", precision_text(job.config)},
       {"ranks", rank_context.size()},
       {"device", rank_context.device.is_cuda() ? "cuda" : "cpu"},
       {"plan", plan_text(job)},
       {"steps", job.length.total_steps},
       {"sequences_a_step", job.global_batch},
       {"host", monitor::host_name()},
       {"pid", ::getpid()},
       {"job", rank_context.round.job},
       {"round", rank_context.round.number},
       {"program", monitor::program_identity()},
       {"libtorch", TORCH_VERSION},
       {"data", identity_of(job).at("data")},
       {"origins", origins_json(origins)}});
}

void record_forecast(Job& job, const std::optional<Forecast>& forecast) {
  if (job.monitor == nullptr || !forecast) {
    return;
  }
  nlohmann::ordered_json event{
      {"bytes", forecast->bytes},
      {"room", forecast->room},
      {"kinds", nlohmann::ordered_json::object()}};
  for (const auto& [kind, bytes] : forecast->kinds) {
    event["kinds"][kind] = bytes;
  }
  if (forecast->speed) {
    event["step_s"] = forecast->speed->step_seconds;
    event["roofline_s"] = forecast->speed->roofline_seconds;
    event["tokens_per_s"] = forecast->speed->tokens_per_second;
    job.monitor->set_roofline(forecast->speed->roofline_seconds);
    event["figures"] = forecast->speed->basis;
  }
  job.monitor->event("forecast", event);
}

void record_measured(
    Job& job, const Forecast& forecast, double step_seconds, double peak_memory_bytes) {
  nlohmann::ordered_json event{
      {"bytes", peak_memory_bytes}, {"predicted_bytes", forecast.bytes}, {"step_s", step_seconds}};
  if (forecast.speed) {
    event["predicted_step_s"] = forecast.speed->step_seconds;
  }
  job.monitor->event("measured", event);
}

void record_failure(Job& job) {
  if (job.monitor == nullptr) {
    return;
  }
  try {
    throw;
  } catch (const Error& error) {
    job.monitor->event("failed", {{"error", error.what()}, {"exit_code", exit_code(error.kind())}});
  } catch (const std::exception& error) {
    job.monitor->event("failed", {{"error", redacted(error.what())}, {"exit_code", 1}});
  }
}

std::optional<double> accuracy_of(const Job& job, const parallel::StepResult& result) {
  const model::HeadSpec& head = job.task.head;
  if (!job.is_classifier() || !head.classifies() ||
      head.problem != model::ProblemType::kSingleLabel) {
    return std::nullopt;
  }
  Evaluation step;
  step.report = job.model->objective().report(result.sums);
  // The name of this metric depends on whether class weights are set.
  const double accuracy = step.metric("accuracy");
  return std::isnan(accuracy) ? step.metric("token_accuracy") : accuracy;
}

std::vector<std::pair<std::string, double>> step_metrics(
    const Job& job, const parallel::StepResult& result, const data::StepBatch& batch) {
  std::vector<std::pair<std::string, double>> metrics;
  if (job.answer_reference != nullptr) {
    metrics = job.model->objective().report(result.sums).metrics;
  }
  if (const auto accuracy = accuracy_of(job, result)) {
    metrics.emplace_back("accuracy", *accuracy);
  }
  if (result.experts) {
    const config::TrainingSection& training = job.config.training;
    metrics.emplace_back("expert_load_most", result.experts->most);
    metrics.emplace_back("expert_load_least", result.experts->least);
    if (training.expert_capacity_factor) {
      metrics.emplace_back("expert_dropped", result.experts->dropped);
    }
    if (!training.router_aux_loss.empty() && training.router_aux_loss != "none") {
      metrics.emplace_back("router_aux_loss", result.experts->balance);
    }
    if (training.router_z_loss_coef > 0) {
      metrics.emplace_back("router_z_loss", result.experts->z);
    }
  }
  const auto taken =
      static_cast<double>(std::accumulate(batch.taken.begin(), batch.taken.end(), int64_t{0}));
  for (size_t i = 0; i < batch.taken.size(); ++i) {
    metrics.emplace_back(
        "mixture/" + job.datasets.train->sources()[i].name,
        static_cast<double>(batch.taken[i]) / taken);
  }
  return metrics;
}

void count_rows(Job& job, const parallel::StepResult& result, const data::StepBatch& batch) {
  if (job.is_classifier()) {
    job.epoch_rows.add(result.loss, accuracy_of(job, result), batch.samples);
  }
}

void end_epoch(Job& job, bool is_told) {
  if (!is_told && job.monitor != nullptr && job.is_classifier()) {
    job.monitor->print("train" + job.epoch_rows.text(job.progress.epoch));
  }
  job.epoch_rows = {};
}

void tell_of_early_stop(Job& job) {
  if (job.monitor == nullptr) {
    return;
  }
  log_info(
      "stopping early after step {}: {} evaluations did not improve on eval_{} {:.5g} of step {}",
      job.progress.step,
      job.best.no_better,
      job.best_rule.metric(),
      job.best.metric.value_or(0),
      job.best.step);
  job.monitor->event("stopping early", {{"best_step", job.best.step}});
}

void tell_of_stop(Job& job, const std::string& by) {
  if (job.monitor == nullptr) {
    return;
  }
  log_warning(
      "stopped by {} after step {}{}; resume with training.resume_from_checkpoint=true",
      by,
      job.progress.step,
      job.progress.owes_evaluation ? ", whose evaluation is done again after the resume" : "");
  job.monitor->event("stopped", {{"by", by}});
}

void throw_with_memory(const Job& job, int rank) {
  if (const auto error = current_out_of_memory()) {
    throw Error(
        error->kind(),
        fmt::format(
            "{}\nmemory of rank {} so far:\n{}",
            error->message(),
            rank,
            parallel::memory_table(job.model->memory().phases())),
        error->remedy());
  }
}

int64_t peak_memory_of_phase(const Job& job, const RankContext& rank_context) {
  return rank_context.device.is_cpu() ? monitor::process_memory().peak_resident_bytes
                                      : parallel::most_of(job.model->memory().phases());
}

void log_memory(Job& job, RankContext& rank_context) {
  // Whether a step is logged must not depend on the rank.
  const int64_t step = job.progress.step, every = job.length.logging_steps;
  const bool is_logged = (every > 0 && step % every == 0) || step == job.length.total_steps ||
                         (step == 1 && job.config.training.logging_first_step);
  if (!job.config.monitor.log_memory || !is_logged) {
    return;
  }
  parallel::MemoryAccount& memory = job.model->memory();
  const at::Tensor mine = at::tensor(memory.numbers(), at::kLong);
  const at::Tensor all =
      at::empty({rank_context.size(), parallel::MemoryAccount::kNumbers}, at::kLong);
  rank_context.communicator.all_gather(all, mine).wait();
  memory.forget();
  if (!rank_context.is_first()) {
    return;
  }
  int fullest = 0;
  std::vector<std::array<parallel::PhaseMemory, parallel::kMemoryPhases>> ranks;
  for (int rank = 0; rank < rank_context.size(); ++rank) {
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
      rank_context.size() > 1 ? fmt::format(", the fullest of {}", rank_context.size()) : "",
      parallel::memory_table(ranks[static_cast<size_t>(fullest)]));
}

void tell_of_time(const Job& job, const TimeAccount& time, double all) {
  if (job.monitor != nullptr) {
    log_debug("{}", time.text(all));
    job.monitor->event("time", time.json(all));
  }
}

void tell_of_spike(Job& job, const std::optional<Spikes::Spike>& spike) {
  if (!spike || job.monitor == nullptr) {
    return;
  }
  log_warning(
      "step {}: gradient norm {:.3g} is {:.3g} times the 99th percentile of the last steps "
      "({:.3g}): a bad batch, a learning rate that is too high, or a computation error. `lockstep "
      "replay {}/checkpoint-STEP --step {}` repeats it from an earlier checkpoint",
      job.progress.step,
      spike->value,
      spike->value / spike->quantile,
      spike->quantile,
      job.config.training.output_dir,
      job.progress.step);
  job.monitor->event(
      "spike",
      {{"grad_norm", spike->value}, {"quantile_99", spike->quantile}, {"median", spike->median}});
}

void report_gradient(Job& job, const parallel::StepResult& result) {
  if (job.monitor == nullptr) {
    return;
  }
  if (result.overflowed) {
    job.monitor->event("overflow", nlohmann::ordered_json::object());
    return;
  }
  const bool is_zero = result.gradient_norm == 0;
  if (!std::exchange(job.gradient_was_zero, is_zero) && is_zero) {
    log_warning(
        "step {}: the gradient is exactly 0 at a loss of {:.6g}, so nothing is learned from this "
        "batch; check its rows and the weights and coefficients of the loss",
        job.progress.step,
        result.loss);
    job.monitor->event("zero gradient", {{"loss", result.loss}});
  }
}

void tell_of_comparison(Job& job, double seconds) {
  if (job.monitor != nullptr) {
    job.monitor->event("compared replicas", {{"seconds", seconds}});
  }
}

void tell_of_saves(const Job& job, double seconds, int64_t saves) {
  if (job.monitor == nullptr || saves == 0) {
    return;
  }
  std::string size;
  const auto found = checkpoint::list_checkpoints(job.config.training.output_dir);
  if (!found.empty()) {  // empty if the checkpoint was moved to an object store
    uintmax_t all = 0, tensors = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(found.front().folder, ignored)) {
      const uintmax_t bytes = entry.is_regular_file(ignored) ? entry.file_size(ignored) : 0;
      all += bytes;
      tensors += entry.path().extension() == ".safetensors" ? bytes : 0;
    }
    size = fmt::format(
        "; {} has {:.4g} MB, of which {:.4g} MB are weights and optimizer state",
        found.front().folder.filename().string(),
        static_cast<double>(all) / 1e6,
        static_cast<double>(tensors) / 1e6);
  }
  log_debug(
      "training waited {:.3g} s for {} checkpoint{}{}{}",
      seconds,
      saves,
      saves == 1 ? "" : "s",
      job.saver != nullptr ? ", written in the background" : "",
      size);
}

void tell_of_repeat(Job& job, const GuardedStep& step) {
  if (!step.repeated || job.monitor == nullptr) {
    return;
  }
  const double norm = step.result.gradient_norm;
  if (step.wrong) {
    log_warning(
        "step {} was computed incorrectly: the gradient norm was {:.6g} the first time and {:.6g} "
        "the second time, which is used. A processor, memory or link is faulty: test this machine "
        "if it happens again",
        job.progress.step,
        *step.wrong,
        norm);
  } else {
    log_info(
        "step {} was computed twice with the same result: the cause is the batch or the learning "
        "rate",
        job.progress.step);
  }
  job.monitor->event(
      "computed twice",
      {{"grad_norm", norm},
       {"differed", step.wrong.has_value()},
       {"first_grad_norm", step.wrong.value_or(norm)}});
}

}  // namespace lockstep::train
