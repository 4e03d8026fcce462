// Composes the first and last lines of a run.
#include "train/run_lines.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/log.h"
#include "checkpoint/folders.h"
#include "config/tasks.h"
#include "model/description.h"
#include "monitor/progress.h"
#include "plan/from_config/float8.h"
#include "train/checkpointing.h"
#include "train/plan.h"
#include "train/tasks/preference.h"
#include "train/weights/adapters.h"
#include "train/weights/float8.h"
#include "train/weights/model_loading.h"

namespace lockstep::train {
namespace {

std::string plural(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string packed_text(const model::Quantization& packed) {
  if (packed.bits == 8) {
    return "8 bits";
  }
  return packed.type == model::Quantization::Type::kNf4 ? "NF4" : "FP4";
}

std::string parameters_text(const Job& job) {
  const model::ModelConfig& model = job.model->model().config();
  const auto count = [](int64_t parameters) {
    return monitor::format_count(static_cast<double>(parameters));
  };
  std::string text = count(model::parameter_count(model)) + " parameters";
  if (job.adapters != nullptr) {
    text += fmt::format(
        ", and {} trained in an adapter", count(model::trained_count(*job.adapters, model)));
  }
  return text;
}

/// The result of the last evaluation of data.validation and the best one.
std::string result_text(const Job& job) {
  const std::string name = "eval_" + job.best_rule.metric();
  const std::vector<std::string>& history = job.monitor->state().log_history;
  std::string text;
  for (auto line = history.rbegin(); line != history.rend() && text.empty(); ++line) {
    const nlohmann::json values = nlohmann::json::parse(*line);
    if (values.contains(name) && values[name].is_number()) {
      text = fmt::format(
          "{} {:.5g} after step {}", name, values[name].get<double>(), values.value("step", 0));
    }
  }
  if (!text.empty() && job.best.metric) {
    text += fmt::format("; best {:.5g} after step {}", *job.best.metric, job.best.step);
  }
  return text;
}

/// Quotes a word for a shell, if it has other characters than those of usual paths.
std::string quoted(const std::string& word) {
  const bool is_plain = std::ranges::all_of(word, [](unsigned char letter) {
    return std::isalnum(letter) != 0 ||
           std::string_view("_-./:@+,=").find(static_cast<char>(letter)) != std::string_view::npos;
  });
  return is_plain ? word : fmt::format("'{}'", word);
}

/// The command that uses the model, so that its user can copy it.
std::string next_command(const Job& job) {
  const config::Config& config = job.config;
  const std::string& folder = config.training.output_dir;
  const std::string model =
      job.adapters == nullptr
          ? fmt::format("--model {}", quoted(folder))
          : fmt::format("--model {} --adapter {}", quoted(job.source.name), quoted(folder));
  const std::string device = config.training.use_cpu ? " use_cpu=true" : "";
  const std::vector<std::string>& files =
      config.data.validation.empty() ? config.data.train : config.data.validation;
  const std::string data = files.empty() ? "FILE" : quoted(files.front());
  if (job.is_classifier() && !job.written_labels) {
    return fmt::format("lockstep predict {} --input {}{}", model, data, device);
  }
  const bool generates = !trains_rewards(config.task) && config.task.type != "masked_lm" &&
                         !job.written_labels && !job.source.config.is_encoder_decoder() &&
                         !job.source.config.bidirectional;
  if (generates) {
    return fmt::format(
        "lockstep generate {} --prompt \"Once\"{}",
        model,
        config.training.use_cpu ? " --device-map cpu" : "");
  }
  return fmt::format("lockstep eval {} --data {}{}", model, data, device);
}

}  // namespace

const char* precision_text(const config::Config& config) {
  return config.precision.stochastic_rounding ? "bfloat16 with stochastic rounding"
         : config.training.bf16               ? "bfloat16"
         : config.training.fp16               ? "float16"
                                              : "float32";
}

std::vector<std::string> axes_text(const mesh::Mesh& mesh) {
  std::vector<std::string> axes;
  for (const mesh::Axis axis :
       {mesh::Axis::kData, mesh::Axis::kTensor, mesh::Axis::kPipeline, mesh::Axis::kContext}) {
    if (mesh.size(axis) > 1) {
      axes.push_back(fmt::format("{} {}", mesh::axis_name(axis), mesh.size(axis)));
    }
  }
  return axes;
}

std::string plan_line(
    const config::Config& config,
    const mesh::Mesh& mesh,
    const std::optional<model::Quantization>& packed) {
  const config::ParallelSection& parallel = config.parallel;
  std::vector<std::string> parts;
  if (const auto axes = axes_text(mesh); !axes.empty()) {
    parts.push_back(fmt::format("{}", fmt::join(axes, " x ")));
  }
  if (mesh.pipeline > 1) {
    parts.push_back(fmt::format("schedule {}", parallel.schedule));
  }
  if (parallel.zero_stage > 0) {
    parts.push_back(fmt::format("ZeRO {}", parallel.zero_stage));
  }
  if (const auto adapter = adapter_request(config.lora)) {
    parts.push_back(fmt::format(
        "{} r={}{}",
        adapter->config.use_dora ? "DoRA" : "LoRA",
        adapter->config.r,
        packed ? " on " + packed_text(*packed) : ""));
  }
  if (parallel.recompute != "none") {
    parts.push_back(fmt::format("recompute {}", parallel.recompute));
  }
  parts.emplace_back(precision_text(config));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string task_line(const config::Config& config, const objective::Task& task) {
  if (config::trains_rewards(config.task)) {
    return "reward model";
  }
  if (config::trains_on_answers(config.task)) {
    return fmt::format("preference tuning ({})", loss_name(config.preference));
  }
  if (config::unlearns(config.task)) {
    return fmt::format("unlearning ({})", config::method_of(config.unlearning).name);
  }
  if (config::writes_labels(config.task)) {
    return "generative classification";
  }
  return task.head.classifies()            ? "sequence classification"
         : config.task.type == "masked_lm" ? "masked language modeling"
                                           : "language modeling";
}

std::string batch_line(const config::TrainingSection& training, int64_t data_ranks) {
  const int64_t batch =
      data_ranks * training.per_device_train_batch_size * training.gradient_accumulation_steps;
  return fmt::format(
      "{} per step ({} x {} x {})",
      plural(batch, "sequence"),
      plural(data_ranks, "data rank"),
      training.per_device_train_batch_size,
      plural(training.gradient_accumulation_steps, "micro-batch"));
}

void print_beginning(const Job& job, const RankContext& rank_context) {
  const config::TrainingSection& training = job.config.training;
  const model::ModelConfig& model = job.model->model().config();
  log_info(
      "model: {} ({}), {}",
      job.source.name,
      model::family_name(model.family),
      parameters_text(job));
  const at::ScalarType type = compute_type(training);
  if (const auto stored = type_of_most_weights(job.source);
      stored && *stored != type && !model.quantization) {
    log_info("weights: stored in {}, computed in {}", type_name(*stored), type_name(type));
  }
  log_info("task: {}", task_line(job.config, job.task));
  log_info(
      "plan: {} on {}; {}",
      plural(rank_context.size(), "rank"),
      rank_context.device.str(),
      plan_line(job.config, job.axes->mesh(), model.quantization));
  if (const auto float8 = plan::float8_of(job.config.precision)) {
    log_info("{}", float8_text(*float8, model, rank_context.device));
  }
  const int64_t data_ranks =
      rank_context.configured_ranks() * job.axes->mesh().data / rank_context.size();
  log_info(
      "batch: {}; {}, {:.4g} epochs of {} of {} tokens",
      batch_line(training, data_ranks),
      plural(job.length.total_steps, "step"),
      job.length.epochs,
      plural(job.datasets.train->size(), "sequence"),
      job.datasets.train->length());
  if (rank_context.configured_ranks() != rank_context.size()) {
    log_info(
        "the job started with {} ranks and continues with {}, with the same {} sequences per step",
        rank_context.configured_ranks(),
        rank_context.size(),
        job.global_batch);
  }
}

void print_end(const Job& job) {
  const std::string folder =
      job.stored ? job.stored->place().text() : job.config.training.output_dir;
  log_info("{}: {}", job.adapters == nullptr ? "saved model" : "saved adapter", folder);
  if (const std::string result = result_text(job); !result.empty()) {
    log_info("result: {}", result);
  }
  std::vector<std::string> checkpoints;
  for (const auto& found : checkpoint::list_checkpoints(job.config.training.output_dir)) {
    checkpoints.push_back(found.folder.filename().string());
  }
  if (!checkpoints.empty()) {
    log_info("checkpoints: {}", fmt::join(checkpoints, ", "));
  }
  if (!job.stored) {
    log_info("try it: {}", next_command(job));
  }
}

}  // namespace lockstep::train
