// Sets up, evaluates and completes a training job.
#include "train/job.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/Context.h>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "model/description.h"
#include "model/operations.h"
#include "plan/from_config/float8.h"
#include "train/averages.h"
#include "train/batches/row_choice.h"
#include "train/best_checkpoint.h"
#include "train/checkpointing.h"
#include "train/evaluation_line.h"
#include "train/in_memory_steps.h"
#include "train/judgement/judgement_files.h"
#include "train/judging.h"
#include "train/output_folder.h"
#include "train/paired_data.h"
#include "train/plan.h"
#include "train/run_lines.h"
#include "train/samples.h"
#include "train/sampling.h"
#include "train/start_monitor.h"
#include "train/step_guard.h"
#include "train/tasks/classifier_task.h"
#include "train/tasks/preference.h"
#include "train/tasks/unlearning.h"
#include "train/unlearning_evaluation.h"
#include "train/weights/float8.h"
#include "train/weights/model_loading.h"
#include "train/weights/quantization.h"

namespace lockstep::train {
namespace {

constexpr int64_t kDefaultPrefetch = 2;

/// Checks those parts of a configuration that depend on the data files and on the number of ranks.
void check(const Job& job) {
  const config::TrainingSection& training = job.config.training;
  const Datasets& datasets = job.datasets;
  if (datasets.train == nullptr || datasets.train->size() == 0) {
    throw Error(
        ErrorKind::kData,
        datasets.train == nullptr ? "data.train names no files" : "the training data is empty",
        "set data.train=FILE to a file with text");
  }
  const bool evaluates = training.eval_strategy != "no" || training.do_eval ||
                         training.eval_on_start || training.load_best_model_at_end;
  if (evaluates && datasets.validation == nullptr && !unlearns(job.config.task)) {
    throw Error(
        ErrorKind::kConfig,
        "an evaluation is requested, but there is no validation data",
        "set data.validation=FILE or data.validation_fraction=0.05, or set "
        "training.eval_strategy=no");
  }
  if (job.config.task.calibration == "temperature") {
    const bool fits =
        job.is_classifier() && job.judged_head().problem == model::ProblemType::kSingleLabel;
    if (!fits || datasets.validation == nullptr) {
      throw Error(
          ErrorKind::kConfig,
          fits ? "task.calibration=temperature requires validation data"
               : "task.calibration=temperature requires rows with one label each",
          fits ? "set data.validation=FILE or data.validation_fraction=0.1" : "remove the key");
    }
  }
}

/// Returns the number of data-parallel ranks at the start of the job, before any ranks were lost.
int64_t configured_data_ranks(const Job& job, const RankContext& rank_context) {
  return rank_context.configured_ranks() * job.axes->mesh().data / rank_context.size();
}

/// Returns the number of sequences per step, which does not change if ranks are lost.
int64_t global_batch_of(const Job& job, const RankContext& rank_context) {
  const config::TrainingSection& training = job.config.training;
  return training.per_device_train_batch_size * training.gradient_accumulation_steps *
         configured_data_ranks(job, rank_context);
}

/// Returns the maximum number of micro-batches that a rank computes sequentially in a step.
int64_t micro_batches_of(const Job& job, const RankContext& rank_context) {
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  return divide_up(
      divide_up(global_batch_of(job, rank_context), job.axes->mesh().data),
      job.config.training.per_device_train_batch_size);
}

/// Returns how the loss weights the targets. Trainer's classifiers and preference objectives do not
/// read average_tokens_across_devices.
parallel::LossMean loss_mean_of(const Job& job, const RankContext& rank_context) {
  if (job.config.training.average_tokens_across_devices) {
    return parallel::LossMean::kOfStep;
  }
  const config::TaskSection& task = job.config.task;
  const bool averages_tokens =
      !job.is_classifier() && !trains_on_answers(task) && !config::unlearns(task);
  if (!averages_tokens && rank_context.is_first()) {
    log_warning(
        "training.average_tokens_across_devices=false has no effect: the loss of this task is not "
        "a "
        "mean over tokens");
  }
  return averages_tokens ? parallel::LossMean::kOfRanks : parallel::LossMean::kOfStep;
}

void check_noise(const config::TrainingSection& training, const model::ModelConfig& model) {
  if (training.neftune_noise_alpha.value_or(0) > 0 && model.is_encoder_decoder()) {
    throw Error(
        ErrorKind::kConfig,
        "training.neftune_noise_alpha is not supported with encoder-decoder models: their encoder "
        "and decoder share one embedding, to which Trainer adds no noise",
        "set it to null");
  }
}

/// Opens the data. For a classifier, also sets its labels and padding token.
void open_data(Job& job, int64_t length, RankContext& rank_context) {
  model::ModelConfig& model = job.source.config;
  if (trains_on_answers(job.config.task)) {
    open_answers(job, length, rank_context);
    return;
  }
  if (unlearns(job.config.task)) {
    open_unlearning(job, length, rank_context);
    return;
  }
  if (config::writes_labels(job.config.task)) {
    open_written_labels(job, length, rank_context);
    return;
  }
  if (!classifies(job.config, model)) {
    if (job.config.training.label_smoothing_factor > 0 && model.logit_cap > 0) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "training.label_smoothing_factor is not supported with a model that caps its logits "
              "(final_logit_softcapping {})",
              model.logit_cap),
          "leave it 0");
    }
    job.task.objective = objective::cross_entropy(job.config.training.label_smoothing_factor);
    check_task(job.config.task, model);
    job.datasets = open_datasets(
        job.config.data,
        model,
        job.tokenizer,
        length,
        rank_context.communicator,
        masking_of(job.config, model, *job.tokenizer));
    return;
  }
  ClassifierData data = open_classifier_data(
      job.config, model, job.tokenizer, length, rank_context.communicator, [&] {
        return read_labelled_data(job.config, model);
      });
  job.judging.loss = {
      std::move(data.weights),
      job.config.task.focal_gamma,
      job.config.training.label_smoothing_factor};
  job.datasets = std::move(data.datasets);
  check_problem(job.config, data.head, job.datasets.validation != nullptr);
  job.task.head = std::move(data.head);
  job.task.objective = objective_of(job.task.head.problem, job.judging.loss);
  job.rows = std::move(data.rows);
  model.pad_token_id = data.pad;
  if (rank_context.is_first()) {
    constexpr size_t kMostShown = 8;
    const std::vector<std::string>& labels = job.task.head.labels;
    log_info(
        "{}, {} {}{}: {}{}; padding token {}",
        model::name_of(job.task.head.problem),
        labels.size(),
        job.task.head.problem == model::ProblemType::kRegression ? "output" : "label",
        labels.size() == 1 ? "" : "s",
        fmt::join(labels.begin(), labels.begin() + std::min(labels.size(), kMostShown), ", "),
        labels.size() > kMostShown ? ", ..." : "",
        data.pad);
  }
}

std::vector<std::string> metrics_of(const Job& job) {
  const config::Config& config = job.config;
  const objective::Task& task = job.task;
  if (job.judged_head().classifies()) {
    const auto names = metric_names(job.judged_head().problem);
    const std::vector<std::string>& chosen = job.judging.metrics;
    return chosen.empty() ? std::vector<std::string>{names.begin(), names.end()} : chosen;
  }
  if (unlearns(config.task)) {
    return config::metrics_of(config.unlearning);
  }
  std::vector<std::string> names;
  const std::vector<double> nothing(static_cast<size_t>(task.objective->sums()), 0);
  for (const auto& [name, value] : task.objective->report(nothing).metrics) {
    names.push_back(name);
  }
  return names;
}

Answered answered(const Job& job, const LabelledSet& set) {
  return {
      set,
      job.classified.logits,
      job.judged_head(),
      job.judging.thresholds,
      job.judging.positive,
      job.config.task.save_scores ? Shown::kAll : Shown::kTaken};
}

/// Prints the report of the last evaluation and writes the report files to output_dir.
void report_rows(const Job& job, const LabelledSet& set, RankContext& rank_context) {
  on_first_rank(rank_context.communicator, [&] {
    write_judgement(
        job.config.training.output_dir,
        *job.judgement,
        answered(job, set),
        job.monitor->state().log_history);
    if (job.config.monitor.progress != "json") {  // whose standard output only has JSON
      fmt::print("{}", report_text(*job.judgement, job.judged_head()));
    }
    return "";
  });
}

bool has_labels(const data::SequenceView& rows) {
  return std::ranges::any_of(rows.classes(), [](int64_t each) { return each != data::kNoClass; });
}

/// Predicts the labels of a test set that the report does not cover and writes them to files. If
/// the set has labels, computes the metrics as well.
void answer_rows(
    Job& job,
    const data::SequenceView& rows,
    const LabelledSet& set,
    const std::string& suffix,
    RankContext& rank_context) {
  if (has_labels(rows)) {
    const Evaluation result = job.evaluate(rows, "test", rank_context, suffix);
    print_evaluation(job, result, "test", false, suffix);
  } else {
    (void)evaluate_classifier(job, rows, rank_context);
  }
  on_first_rank(rank_context.communicator, [&] {
    write_answers(job.config.training.output_dir, answered(job, set), "_test" + suffix);
    return "";
  });
}

/// Tunes the final model's thresholds on data.validation (task.thresholds=tuned).
void tune(Job& job, RankContext& rank_context) {
  const data::SequenceView& rows = *job.datasets.validation;
  (void)evaluate_classifier(job, rows, rank_context);
  job.judging.thresholds = tune_thresholds(
      job.classified.logits, {rows.classes(), rows.outputs()}, job.task.head, job.judging.positive);
  if (rank_context.is_first()) {
    log_info("thresholds: {:.4g}", fmt::join(job.judging.thresholds, ", "));
  }
}

void set_up_libtorch(const config::TrainingSection& training) {
  if (training.full_determinism) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
  if (training.tf32) {
    at::globalContext().setAllowTF32CuBLAS(*training.tf32);
  }
}

ModelRequest model_request(const Job& job, const RankContext& rank_context) {
  ModelRequest request;
  request.dtype = compute_type(job.config.training);
  request.device = rank_context.device;
  request.seed = static_cast<uint64_t>(job.config.training.seed);
  request.tokenizer_size = job.tokenizer->vocabulary_size();
  request.resize_embeddings = job.config.model.resize_embeddings;
  request.freeze = job.config.model.freeze;
  request.adapter = adapter_request(job.config.lora);
  request.quantization = quantization_of(job.config.quantization);
  request.float8 = plan::float8_of(job.config.precision);
  request.task = job.task;
  return request;
}

/// Reports that training starts from random weights. This requires a preset or the user's own
/// configuration. A Hub model without weights is an incomplete download, which is an error.
void report_random_weights(
    const model::ModelSource& source,
    const config::TrainingSection& training,
    const RankContext& rank_context) {
  using Kind = model::ModelSource::Kind;
  if (source.kind == Kind::kHub) {
    model::require_weights(source);
  }
  if (!source.has_weights && source.kind != Kind::kPreset && rank_context.is_first()) {
    log_info(
        "{} has no weights: training starts from random weights (seed {})",
        source.name,
        training.seed);
  }
}

}  // namespace

std::unique_ptr<Job> open_job(
    const config::Config& config, const std::string& resolved, RankContext& rank_context) {
  auto job = std::make_unique<Job>();
  job->config = config;
  job->resolved = resolved;
  const config::TrainingSection& training = job->config.training;
  set_up_libtorch(training);
  guard_products(training.check_products, rank_context.device);
  job->source = find_source(config.model.path, config.model.preset);
  report_random_weights(job->source, training, rank_context);
  job->tokenizer = load_tokenizer(config.tokenizer.path, job->source, config.data.chat_template);
  if (job->source.kind == model::ModelSource::Kind::kPreset) {
    take_special_tokens(job->source.config, *job->tokenizer);
  }
  take_output(*job, rank_context);
  const int64_t length = sequence_length_of(config, job->source.config);
  check_plan(config.parallel, length);
  if (rank_context.is_first()) {
    warn_of_positions(job->source.config, length);
  }
  job->config.data = choose_rows(config, job->source.config, rank_context.communicator);
  open_data(*job, length, rank_context);
  job->source.generation = generation_with(job->source, adapter_request(config.lora));
  if (const auto end = end_of_turns(job->config, *job->tokenizer)) {
    model::add_stop_token(job->source.generation, job->source.config, *end);
  }
  if (rank_context.is_first()) {
    tell_packed_rows(job->datasets, training.per_device_train_batch_size);
  }
  check(*job);
  if (job->is_classifier()) {
    take_judging(config.task, job->judged_head(), job->judging);
  }
  if (measures_unlearning(config)) {
    check_measuring(config, job->source.config, job->tokenizer);
  }
  check_samples(*job);
  job->best_rule = BestRule(training, metrics_of(*job));
  return job;
}

void build_job(Job& job, RankContext& rank_context) {
  const config::Config& config = job.config;
  const config::TrainingSection& training = config.training;
  const parallel::ModelSpec spec = model_spec(job.source, model_request(job, rank_context));
  check_trainable(spec.config.quantization, spec.adapters != nullptr);
  check_float8(spec);
  job.adapters = spec.adapters;
  const int64_t length = sequence_length_of(config, job.source.config);
  job.flops_per_token = model::operations_per_token(spec.config, length).training();
  job.axes = std::make_unique<parallel::ParallelGroups>(
      rank_context.communicator, mesh_of(config.parallel, rank_context.size()), rank_context.group);
  check_mixture(config, spec.config);
  check_noise(training, spec.config);
  parallel::Plan plan = plan_of(config);
  plan.loss_mean = loss_mean_of(job, rank_context);
  plan.accumulation_steps = micro_batches_of(job, rank_context);
  plan.shard_ranks = shard_ranks_of(config.parallel, rank_context.size(), rank_context.local_size);
  job.model = parallel::parallelize(spec, plan, *job.axes);
  if (trains_on_answers(config.task) || unlearns(config.task)) {
    score_answers(job, rank_context);
  }
  if (unlearns(config.task)) {
    job.task.reference = unlearning_reference(config, *job.model, spec, plan, *job.axes);
    job.untouched = untouched_weights(job, model_request(job, rank_context));
  }
  job.global_batch = global_batch_of(job, rank_context);
  job.progress.sampler.seed = static_cast<uint64_t>(training.data_seed.value_or(training.seed));

  const data::SamplerOptions options = sampler_options(job, rank_context);
  job.length = run_length(training, data::Sampler(options, job.progress.sampler).steps_per_epoch());
  check_sources(options, job.length);
  optim::ScheduleOptions& schedule = job.schedule_options;
  schedule.lr_scheduler_type = training.lr_scheduler_type;
  schedule.lr_scheduler_kwargs = scheduler_arguments(training);
  schedule.learning_rate = training.learning_rate;
  schedule.total_steps = job.length.total_steps;
  schedule.warmup_steps = training.warmup_epochs ? std::floor(
                                                       *training.warmup_epochs *
                                                       static_cast<double>(options.sequences) /
                                                       static_cast<double>(options.global_batch))
                                                 : training.warmup_steps;
  job.schedule = optim::make_schedule(schedule);

  std::optional<monitor::TrainerState> history;
  if (const auto resume_from = recover_in_memory_step(job, job.resume_from, rank_context)) {
    history = restore_training_state(job, *resume_from, rank_context);
  }
  job.loader = std::make_unique<data::Loader>(
      job.datasets.train,
      data::Sampler(options, job.progress.sampler),
      training.dataloader_prefetch_factor.value_or(kDefaultPrefetch));
  job.saver = make_saver(job, rank_context);
  job.kept = make_in_memory_checkpoint(job, rank_context);
  if (rank_context.is_first()) {
    print_beginning(job, rank_context);
  }
  start_monitor(job, rank_context, std::move(history));
}

bool Job::is_classifier() const {
  return judged_head().classifies() && !trains_rewards(config.task);
}

bool Job::can_evaluate() const {
  return datasets.validation != nullptr || measures_unlearning(config);
}

bool Job::evaluation_is_due(const StepEnd& at) const {
  const config::TrainingSection& training = config.training;
  const double reached =
      training.eval_strategy == "epoch" ? progress.epoch : static_cast<double>(at.step);
  return can_evaluate() && reached >= training.eval_delay &&
         is_due(training.eval_strategy, length.eval_steps, at);
}

Evaluation Job::evaluate(
    const data::SequenceView& sequences,
    const std::string& prefix,
    RankContext& rank_context,
    const std::string& suffix) {
  const auto prepare = [&](nn::ForwardInputs& inputs, const data::MicroBatch& batch) {
    if (answer_reference != nullptr) {
      answer_reference->refer_batch(inputs, batch, sequences);
    }
  };
  const Averages averages(*model);
  const Evaluation result = sequences.has_classes()
                                ? evaluate_classifier(*this, sequences, rank_context)
                                : train::evaluate(
                                      [&](std::span<const nn::ForwardInputs> batches) {
                                        return model->statistics(batches);
                                      },
                                      model->objective(),
                                      sequences,
                                      config.training.per_device_eval_batch_size,
                                      *axes,
                                      rank_context.device,
                                      between_batches(*this),
                                      prepare);
  if (!std::isfinite(result.report.loss) && rank_context.is_first()) {
    log_warning(
        "{} at step {}: the loss is {}", prefix + suffix, progress.step, result.report.loss);
  }
  report_evaluation(result, prefix, suffix);
  return result;
}

void Job::report_evaluation(
    const Evaluation& result, const std::string& prefix, const std::string& suffix) {
  if (monitor != nullptr) {
    monitor::EvaluationReport report;
    report.step = progress.step;
    report.epoch = progress.epoch;
    report.loss = result.report.loss;
    report.metrics = result.report.metrics;
    if (prefix == "eval" && suffix.empty()) {
      for (const auto& [name, value] : epoch_rows.values()) {
        report.values.emplace_back(name, value);
      }
    }
    report.samples = result.samples;
    report.batches = result.batches;
    report.runtime_s = result.seconds;
    report.prefix = prefix;
    report.suffix = suffix;
    monitor->evaluation(report);
  }
}

Evaluation Job::evaluate_by_the_way(RankContext& rank_context) {
  // Samples are first: an evaluation that a signal ends has not logged its result.
  write_samples(*this, rank_context);
  if (!unlearns(config.task)) {
    return evaluate(*datasets.validation, "eval", rank_context);
  }
  const Evaluation result = measure_run(*this, rank_context);
  report_evaluation(result, "eval");
  return result;
}

std::string Job::evaluate_training(RankContext& rank_context) {
  const Evaluation result = evaluate_by_the_way(rank_context);
  schedule->observe(result.metric(best_rule.metric()));
  const bool better = best_rule.observe(best, result.metric(best_rule.metric()), progress.step);
  std::string line = print_evaluation(*this, result, "eval", better);
  if (better && monitor != nullptr) {
    if (best_rule.is_asked_for()) {
      monitor->state().best_metric = best.metric;
      if (config.training.save_strategy != "no") {
        monitor->state().best_global_step = progress.step;
      }
    }
    monitor->event(
        "best", {{"metric", "eval_" + best_rule.metric()}, {"value", best.metric.value_or(0)}});
  }
  return line;
}

void finish_job(Job& job, RankContext& rank_context) {
  const config::TrainingSection& training = job.config.training;
  wait_for_save(job);
  job.model->put_averages(true);  // training is finished
  if (training.load_best_model_at_end) {
    load_best_model(job, rank_context);
  }
  if (job.config.task.calibration == "temperature") {
    calibrate(job, rank_context);
  }
  if (job.task.head.classifies() && job.config.task.thresholds == "tuned") {
    tune(job, rank_context);
  }
  const bool classifies = job.is_classifier();
  const bool has_test =
      job.datasets.test != nullptr && (!classifies || has_labels(*job.datasets.test));
  const bool validates = classifies && !has_test && job.datasets.validation != nullptr;
  if (job.datasets.validation_mm !=
      nullptr) {  // evaluated first, because the report covers the other sets
    const Evaluation result =
        job.evaluate(*job.datasets.validation_mm, "eval", rank_context, "_mm");
    print_evaluation(job, result, "eval", false, "_mm");
  }
  if (training.do_eval && unlearns(job.config.task)) {
    print_evaluation(job, job.evaluate_by_the_way(rank_context), "eval");
  } else if (training.do_eval || validates) {
    print_evaluation(job, job.evaluate(*job.datasets.validation, "eval", rank_context), "eval");
  }
  if ((training.do_predict || classifies) && has_test) {
    print_evaluation(job, job.evaluate(*job.datasets.test, "test", rank_context), "test");
  }
  if (classifies && (has_test || validates)) {
    report_rows(job, has_test ? job.rows.test : job.rows.validation, rank_context);
  }
  if (job.datasets.test != nullptr && !has_test) {
    answer_rows(job, *job.datasets.test, job.rows.test, "", rank_context);
  }
  if (job.datasets.test_mm != nullptr) {
    answer_rows(job, *job.datasets.test_mm, job.rows.test_mm, "_mm", rank_context);
  }
  export_final_model(job, rank_context);
  on_first_rank(rank_context.communicator, [&] {
    job.monitor->finish();
    if (job.stored) {
      job.stored->publish_files();
    }
    print_end(job);
    return "";
  });
}

}  // namespace lockstep::train
