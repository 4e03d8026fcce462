// Evaluates unlearning, for saved models and running jobs.
#include "train/unlearning_evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "metrics/curve_picture.h"
#include "parallel/parallelize.h"
#include "train/checkpointing.h"
#include "train/plan.h"
#include "train/tasks/answer_reference.h"
#include "train/tasks/unlearning.h"
#include "train/tasks/unlearning_suite.h"
#include "train/weights/model_fingerprint.h"
#include "train/weights/model_loading.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPassing = ".evaluated";  // temporary folder of the model to measure
constexpr const char* kFolder = "evals";
constexpr std::string_view kStep = "checkpoint-";

/// Returns a hash of the model and its adapter.
std::string hash_of(const config::Config& config, const SavedModel& model) {
  const std::string hash = model_fingerprint(config, model.source, WithAdapter::kNo);
  return model.adapter ? hash + "+" + folder_fingerprint(model.adapter->folder) : hash;
}

std::vector<int64_t> stops_of(const model::ModelConfig& model, const text::Tokenizer& tokenizer) {
  std::vector<int64_t> stops = model.eos_token_ids;
  if (tokenizer.eos()) {
    stops.push_back(*tokenizer.eos());
  }
  return stops;
}

/// Returns the results in a run folder by step, for steps up to `last`.
std::map<int64_t, json> results_of_run(
    const fs::path& output_dir, const config::UnlearningSection& section, int64_t last) {
  std::map<int64_t, json> found;
  std::error_code ignored;
  for (const fs::directory_entry& each : fs::directory_iterator(output_dir / kFolder, ignored)) {
    const std::string name = each.path().filename().string();
    const fs::path file = each.path() / results_file(section);
    if (!name.starts_with(kStep) || !fs::exists(file, ignored)) {
      continue;
    }
    const int64_t step = std::atoll(name.c_str() + kStep.size());
    if (step <= last) {
      found[step] = read_json(file, ErrorKind::kData, kLongestJsonTable);
    }
  }
  return found;
}

double aggregate_of(const json& results, const char* name) {
  const auto found = results.find(name);
  return found != results.end() && (*found)["agg_value"].is_number()
             ? (*found)["agg_value"].get<double>()
             : std::numeric_limits<double>::quiet_NaN();
}

/// Returns the cumulative distribution of the values.
metrics::NamedCurve distribution(std::string name, std::vector<double> values) {
  std::ranges::sort(values);
  metrics::NamedCurve result{std::move(name), {}};
  const auto count = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    for (const size_t below : {i, i + 1}) {
      result.curve.x.push_back(std::log10(std::max(values[i], 1e-30)));
      result.curve.y.push_back(static_cast<double>(below) / count);
    }
  }
  return result;
}

/// Plots forget quality (or forget_truth_ratio if there are no retain model results) against
/// utility, by step. For MUSE, plots knowledge of the forget set against knowledge of the retain
/// set.
std::string picture_of_path(const std::map<int64_t, json>& results, bool is_muse) {
  const bool has_quality = std::ranges::any_of(
      results, [](const auto& each) { return aggregate_of(each.second, "forget_quality") > 0; });
  const char* across = is_muse ? "retain_knowmem_ROUGE" : "model_utility";
  const char* up = is_muse       ? "forget_knowmem_ROUGE"
                   : has_quality ? "forget_quality"
                                 : "forget_truth_ratio";
  metrics::NamedCurve path{"by step", {}};
  for (const auto& [step, each] : results) {
    const double value = aggregate_of(each, up), utility = aggregate_of(each, across);
    const double forgotten = has_quality && !is_muse ? std::log10(std::max(value, 1e-300)) : value;
    if (std::isfinite(forgotten) && std::isfinite(utility)) {
      path.curve.x.push_back(utility);
      path.curve.y.push_back(forgotten);
      path.marks.push_back(fmt::format("{}", step));
    }
  }
  return metrics::draw_curves(
      {path},
      {"Forgetting against utility",
       across,
       has_quality && !is_muse ? "log10 forget_quality" : up,
       /*is_unit=*/false});
}

/// Plots the distributions that the Kolmogorov-Smirnov test compares.
std::string picture_of_ratios(const std::map<int64_t, json>& results, const fs::path& retained) {
  constexpr size_t kMost = 6;
  std::vector<metrics::NamedCurve> curves;
  if (!retained.empty()) {
    curves.push_back(distribution(
        "retain model", truth_ratios_of(read_json(retained, ErrorKind::kData, kLongestJsonTable))));
  }
  // Plots the first, the last and some results in between.
  const size_t stride = (results.size() + kMost - 1) / kMost;
  size_t number = 0;
  for (const auto& [step, each] : results) {
    const bool is_shown = number % stride == 0 || number + 1 == results.size();
    ++number;
    if (std::vector<double> ratios = truth_ratios_of(each); is_shown && !ratios.empty()) {
      curves.push_back(distribution(fmt::format("step {}", step), std::move(ratios)));
    }
  }
  return metrics::draw_curves(
      curves,
      {"Truth ratios of the forget set",
       "log10 of the truth ratio",
       "share of rows",
       /*is_unit=*/false});
}

void draw(const config::Config& config, int64_t step) {
  const fs::path folder = config.training.output_dir;
  const std::map<int64_t, json> results = results_of_run(folder, config.unlearning, step);
  const bool is_muse = config.unlearning.benchmark == "muse";
  write_file_atomically(folder / "unlearning_path.svg", picture_of_path(results, is_muse));
  if (is_muse) {
    return;  // MUSE has no truth ratios
  }
  write_file_atomically(
      folder / "truth_ratios.svg",
      picture_of_ratios(results, config.unlearning.retain_logs_path.value_or("")));
}

}  // namespace

Measured measure_unlearning(
    const config::Config& config,
    const SavedModel& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    const fs::path& folder,
    parallel::ParallelGroups& axes,
    RankContext& rank_context,
    const std::function<void(const std::string& metric, const json& value)>& tell,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  ModelRequest request;
  request.device = rank_context.device;
  request.dtype = config.training.bf16 || config.training.bf16_full_eval
                      ? at::kBFloat16
                      : stored_type(model.source);
  request.tokenizer_size = tokenizer->vocabulary_size();
  request.is_evaluation = true;
  request.adapter = model.adapter;
  const parallel::ShardedModel sharded =
      parallel::make_sharded_model(model_spec(model.source, request), {}, axes);
  AnswerReader reader(
      *sharded.model,
      axes,
      tokenizer,
      config.training.per_device_eval_batch_size,
      rank_context.device,
      progress);
  UnlearningSuite suite(
      config,
      tokenizer,
      stops_of(model.source.config, *tokenizer),
      sequence_length_of(config, model.source.config),
      &reader);
  const std::string there = on_first_rank(rank_context.communicator, [&] {
    const std::string hash = hash_of(config, model);
    return config.unlearning.overwrite
               ? json({{"model_hash", hash}}).dump()
               : read_unlearning_results(folder, config.unlearning, hash).dump();
  });
  json results = json::parse(there);
  const std::vector<std::string> metrics = config::metrics_of(config.unlearning);
  if (std::ranges::find(metrics, "mia_reference") != metrics.end() &&
      !results.contains("mia_reference")) {
    ModelRequest of_reference = request;
    of_reference.adapter.reset();
    const model::ModelSource reference =
        find_source(config.unlearning.mia_reference_path.value_or(""), "");
    model::require_weights(reference);
    const parallel::ShardedModel other =
        parallel::make_sharded_model(model_spec(reference, of_reference), {}, axes);
    AnswerReader its_reader(
        *other.model,
        axes,
        tokenizer,
        config.training.per_device_eval_batch_size,
        rank_context.device,
        progress);
    suite.read_reference(its_reader);
  }
  Measured measured;
  for (const std::string& metric : metrics) {
    suite.measure(metric, results);
    const json& value = results[metric]["agg_value"];
    if (value.is_number()) {
      measured.summary.emplace_back(metric, value.get<double>());
    }
    on_first_rank(rank_context.communicator, [&] {
      write_unlearning_results(folder, results, config.unlearning);
      tell(metric, value);
      return "";
    });
  }
  const std::vector<double> losses = suite.losses_of_forgotten();
  measured.rows = std::ssize(losses);
  for (const double loss : losses) {
    measured.loss += loss / static_cast<double>(losses.size());
  }
  measured.warnings = suite.warnings();
  return measured;
}

bool measures_unlearning(const config::Config& config) {
  const config::TrainingSection& training = config.training;
  return unlearns(config.task) &&
         (training.eval_strategy != "no" || training.eval_on_start || training.do_eval);
}

void check_measuring(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  const UnlearningSuite suite(
      config, tokenizer, stops_of(model, *tokenizer), sequence_length_of(config, model), nullptr);
}

Evaluation measure_run(Job& job, RankContext& rank_context) {
  const auto began = std::chrono::steady_clock::now();
  if (job.monitor != nullptr) {
    job.monitor->activity("evaluating");
  }
  if (job.evaluation_axes == nullptr) {
    mesh::Mesh mesh;
    mesh.tensor = job.axes->mesh().tensor;
    mesh.data = rank_context.size() / mesh.tensor;
    job.evaluation_axes = std::make_unique<parallel::ParallelGroups>(
        rank_context.communicator, mesh, rank_context.group);
  }
  const fs::path output = job.config.training.output_dir, passing = output / kPassing;
  wait_for_save(job);
  export_model(job, passing, rank_context);
  config::Config config = job.config;
  config.unlearning.overwrite = true;
  SavedModel model;
  if (job.adapters != nullptr) {
    model.source = job.source;
    model.adapter = saved_adapter(passing);
  } else {
    model.source = model::find_model(passing.string());
  }
  Measured measured;
  const SaveSignals::Asked asked = interrupted_by([&] {
    measured = measure_unlearning(
        config,
        model,
        job.tokenizer,
        output / kFolder / fmt::format("{}{}", kStep, job.progress.step),
        *job.evaluation_axes,
        rank_context,
        [](const std::string&, const json&) {},
        between_batches(job));
  });
  on_first_rank(rank_context.communicator, [&] {
    fs::remove_all(passing);
    return "";
  });
  if (asked != SaveSignals::Asked::kNothing) {
    throw Interrupted{asked};
  }
  on_first_rank(rank_context.communicator, [&] {
    draw(config, job.progress.step);
    for (const std::string& warning : measured.warnings) {
      log_warning("{}", warning);
    }
    return "";
  });
  Evaluation result;
  result.report = {measured.loss, measured.summary};
  result.samples = result.targets = measured.rows;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace lockstep::train
