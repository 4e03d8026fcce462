// `lockstep eval` for language models, reward models, preferences and classifiers.
#include "cli/eval.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/adapter_flags.h"
#include "cli/classify.h"
#include "cli/eval_unlearning.h"
#include "cli/rank_context.h"
#include "config/core/scalar.h"
#include "config/resolve.h"
#include "data/bigram.h"
#include "parallel/parallelize.h"
#include "start/completion.h"
#include "train/batches/datasets.h"
#include "train/batches/row_choice.h"
#include "train/checkpointing.h"
#include "train/evaluate.h"
#include "train/plan.h"
#include "train/tasks/preference.h"
#include "train/tasks/unlearning.h"
#include "train/weights/adapter_folder.h"
#include "train/weights/model_loading.h"
#include "train/weights/quantization.h"

namespace lockstep::cli {
namespace {

config::ResolveOptions eval_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "eval";
  options.common = {
      {"Keys",
       {"model.path",
        "tokenizer.path",
        "lora.adapter",
        "quantization.bits",
        "data.validation",
        "data.prompt",
        "data.sequence_length",
        "data.text_field",
        "data.label_field",
        "task.type",
        "task.metrics",
        "training.per_device_eval_batch_size",
        "training.bf16",
        "parallel.tensor"}}};
  options.required = {"model.path"};
  options.flags = {
      {"nproc",
       Kind::kValue,
       "Ranks to start on this machine. int; default: one per GPU, otherwise 1"},
      {"json", Kind::kSwitch, "Print a JSON object only"},
      {"bigram",
       Kind::kSwitch,
       "Also compute the loss of a bigram model of data.train; exit code 1 if the model is not "
       "better"},
      {"output",
       Kind::kValue,
       "Folder for results: report, pictures and predictions of a classifier, or metrics of "
       "unlearning. path"},
      {"model", Kind::kKey, "The same as model.path", "model.path"},
      {"adapter", Kind::kValue, kAdapterHelp},
      {"adapter-weight", Kind::kValue, kAdapterWeightHelp},
      {"adapter-combination", Kind::kValue, kAdapterCombinationHelp},
      {"data", Kind::kKey, "The same as data.validation", "data.validation"},
      {"train", Kind::kKey, "The same as data.train", "data.train"},
  };
  return options;
}

/// Returns the adapters of the flags. Without flags, returns lora.adapter.
train::AdapterFlags adapter_flags(const config::Resolution& resolution) {
  const auto values = [&](const char* flag) {
    const auto found = resolution.flags.find(flag);
    return found == resolution.flags.end() ? std::vector<std::string>{} : found->second;
  };
  train::AdapterFlags flags{
      values("adapter"), {}, resolution.value("adapter-combination").value_or("")};
  config::LoraSection keys = resolution.config.lora;
  keys.lora_dropout.reset();  // no effect in evaluation
  if (!flags.folders.empty() && keys != config::LoraSection{}) {
    throw Error(
        ErrorKind::kConfig, "--adapter cannot be combined with keys of lora", "remove these keys");
  }
  if (flags.folders.empty() && !resolution.config.lora.adapter.empty()) {
    flags.folders.push_back(resolution.config.lora.adapter);
  }
  for (const std::string& word : values("adapter-weight")) {
    const std::optional<double> weight = config::to_double(word);
    if (!weight) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("--adapter-weight: '{}' is not a number", word),
          "give a number such as 0.5");
    }
    flags.weights.push_back(*weight);
  }
  if (!flags.combination.empty() && flags.combination != "cat" && flags.combination != "linear") {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--adapter-combination: '{}' is not cat or linear", flags.combination),
        "cat sums the outputs of the adapters, linear their factors");
  }
  return flags;
}

/// Throws unless there is at most one adapter, with weight 1. Other adapters are not supported for
/// classifiers and unlearning.
void require_one_adapter(const train::AdapterFlags& flags) {
  if (flags.folders.size() > 1 || !flags.weights.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "several adapters, or adapter weights, are supported only for language-model losses",
        "merge them into the model first: lockstep export --model BASE --adapter DIR ... --merge");
  }
}

/// Evaluates a classifier: computes metrics and the report, and with `--output` writes them to
/// files.
int evaluate_classifier(const config::Resolution& resolution, train::RankContext& rank_context) {
  config::Config config = resolution.config;
  if (!config.data.validation.empty() || !config.data.test.empty()) {
    config.data.train.clear();
  }
  const ClassifiedRows rows =
      classify_rows(config, resolution.origins, train::LabelsNeeded::kAll, rank_context);
  if (!rank_context.is_first()) {
    return 0;
  }
  const model::HeadSpec& head = rows.data.head;
  const train::Answered answered = rows.answered();
  const train::Judgement judgement =
      train::judge(answered.logits, answered.set.targets, head, rows.judging);
  if (const auto folder = resolution.value("output")) {
    train::write_judgement(*folder, judgement, answered);
  }
  nlohmann::ordered_json report = nlohmann::ordered_json::object();
  const bool has_labels = judgement.rows > 0;  // without labels, only predictions are reported
  if (has_labels) {
    train::check_finite(judgement.loss);
    report["eval_loss"] = judgement.loss;
  }
  for (const auto& [name, value] : judgement.metrics) {
    report["eval_" + name] = value;
  }
  report["eval_samples"] = judgement.rows;
  report["eval_runtime"] = rows.classified.seconds;
  if (resolution.has("json")) {
    if (has_labels) {
      report[judgement.report ? "classification_report" : "regression_report"] =
          train::report_json(judgement, head);
    }
    if (!judgement.confusion.empty()) {
      report["confusion_matrix"] = judgement.confusion;
    }
    fmt::print("{}\n", report.dump());
    return 0;
  }
  for (const auto& [name, value] : report.items()) {
    fmt::print("{:<26} {}\n", name, value.dump());
  }
  if (has_labels) {
    fmt::print("\n{}", train::report_text(judgement, head));
  }
  return 0;
}

/// Opens the answers of data.validation. `model` is that of the folder and its adapter. Throws
/// Error (config) if the objective compares with the model at the start of training, which is in no
/// model folder.
train::Datasets open_answers(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t length,
    train::RankContext& rank_context) {
  if (train::needs_reference(config)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "preference.objective={} compares with the model at the start of training, which a "
            "model folder does not contain",
            config.preference.objective),
        "evaluate in training (data.validation and do_eval=true); for dpo and ipo, "
        "preference.reference_free=true evaluates without it");
  }
  if (train::trains_rewards(config.task) && !model.head.classifies()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} has no reward head", config.model.path),
        "train one: lockstep train task.type=reward_model model.path=... data.train=FILE");
  }
  return train::open_preference_data(
             config,
             model,
             tokenizer,
             length,
             config.training.per_device_eval_batch_size,
             rank_context.communicator)
      .rows;
}

int evaluate(
    const config::Resolution& resolution,
    const train::AdapterFlags& flags,
    train::RankContext& rank_context) {
  config::Config config = resolution.config;
  if (train::unlearns(config.task)) {
    require_one_adapter(flags);
    return evaluate_unlearning(resolution, rank_context);
  }
  if (!resolution.has("bigram") && !config.data.validation.empty()) {
    config.data.train.clear();  // not needed, so do not tokenize it
    config.data.mixture.clear();
  }
  model::ModelSource source = train::find_source(config.model.path, "");
  model::require_weights(source);
  const auto adapter = train::saved_adapters(flags);
  const model::ModelConfig trained = train::config_with(source.config, adapter);
  const bool judges = train::trains_on_answers(config.task);
  if (!judges && (train::classifies(config, trained) || writes_labels(source, adapter))) {
    require_one_adapter(flags);
    return evaluate_classifier(resolution, rank_context);
  }
  const auto tokenizer =
      train::load_tokenizer(train::tokenizer_path(config.tokenizer.path, adapter), source);
  const int64_t length = length_of_rows(config, source.config);
  config.data = train::choose_rows(config, source.config, rank_context.communicator);
  const train::Datasets datasets =
      judges ? open_answers(config, trained, tokenizer, length, rank_context)
             : train::open_datasets(
                   config.data,
                   source.config,
                   tokenizer,
                   length,
                   rank_context.communicator,
                   train::masking_of(config, source.config, *tokenizer));
  if (datasets.validation == nullptr || (resolution.has("bigram") && datasets.train == nullptr)) {
    throw Error(
        ErrorKind::kConfig,
        datasets.validation == nullptr ? "no evaluation data"
                                       : "a bigram model requires training text",
        datasets.validation == nullptr ? "give --data FILE" : "give --train FILE");
  }
  train::ModelRequest request;
  request.device = rank_context.device;
  request.dtype = config.training.bf16 || config.training.bf16_full_eval
                      ? at::kBFloat16
                      : train::stored_type(source);
  request.tokenizer_size = tokenizer->vocabulary_size();
  request.is_evaluation = true;
  request.adapter = adapter;
  request.quantization = train::quantization_of(config.quantization);
  if (judges) {
    request.task.objective = train::preference_objective(config);
  }
  if (train::trains_rewards(config.task)) {
    request.task.head = model::reward_head();
    source.config.pad_token_id = train::padding_of_answers(source.config, *tokenizer);
  }
  parallel::ParallelGroups axes(
      rank_context.communicator,
      train::mesh_of(config.parallel, rank_context.size()),
      rank_context.group);
  const parallel::Plan plan = train::plan_of(config);
  const auto model = parallel::evaluation_model(train::model_spec(source, request), plan, axes);
  const train::Evaluation result = train::evaluate(
      [&](std::span<const nn::ForwardInputs> batches) { return model->statistics(batches); },
      model->objective(),
      *datasets.validation,
      config.training.per_device_eval_batch_size,
      axes,
      rank_context.device);
  train::check_finite(result.report.loss);
  if (!rank_context.is_first()) {
    return 0;
  }
  nlohmann::ordered_json report{{"eval_loss", result.report.loss}};
  for (const auto& [name, value] : result.report.metrics) {
    report["eval_" + name] = value;
  }
  if (!judges) {
    report["eval_tokens"] = result.targets;
  }
  report["eval_samples"] = result.samples;
  report["eval_runtime"] = result.seconds;
  std::optional<double> bigram;
  if (resolution.has("bigram")) {
    bigram = data::bigram_loss(*datasets.train, *datasets.validation).mean();
    report["bigram_loss"] = *bigram;
  }
  if (resolution.has("json")) {
    fmt::print("{}\n", report.dump());
  } else {
    for (const auto& [name, value] : report.items()) {
      fmt::print("{:<20} {}\n", name, value.dump());
    }
  }
  if (bigram && result.report.loss >= *bigram) {
    log_error(
        "the model's loss, {:.4f}, is not below the bigram model's, {:.4f}",
        result.report.loss,
        *bigram);
    return exit_code(ErrorKind::kRun);
  }
  return 0;
}

}  // namespace

int run_eval(std::vector<std::string> arguments) {
  const config::ResolveOptions options = eval_options();
  config::Resolution resolution = config::resolve(arguments, options);
  if (resolution.help) {
    return start::print_help(options, resolution, arguments);
  }
  train::AdapterFlags adapters = adapter_flags(resolution);
  train::use_adapter_folder(resolution.config.model.path, adapters.folders);
  if (!adapters.folders.empty()) {
    resolution.config.lora.adapter = adapters.folders.front();
  }
  RankOptions ranks;
  ranks.command = "eval";
  ranks.arguments = std::move(arguments);
  ranks.ranks = resolution.integer("nproc", 1);
  ranks.use_cpu = resolution.config.training.use_cpu;
  return run_ranks(ranks, [&](train::RankContext& rank_context) {
    return evaluate(resolution, adapters, rank_context);
  });
}

}  // namespace lockstep::cli
