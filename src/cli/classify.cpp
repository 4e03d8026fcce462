// Implements classification for `lockstep eval` and `lockstep predict`.
#include "cli/classify.h"

#include <algorithm>

#include <ATen/ops/isnan.h>

#include "base/error.h"
#include "base/format.h"
#include "parallel/parallelize.h"
#include "train/checkpointing.h"
#include "train/judging.h"
#include "train/plan.h"
#include "train/tasks/generative.h"
#include "train/weights/model_loading.h"
#include "train/weights/quantization.h"

namespace lockstep::cli {

namespace {

train::LabelledData labelled(
    const config::Config& config,
    const model::ModelConfig& model,
    const train::ClassifierNotes& notes,
    train::LabelsNeeded needed,
    const std::optional<std::string>& text) {
  if (!text) {
    return train::read_labelled_data(config, model, needed);
  }
  train::LabelledData data;
  data.labels = notes.generative ? notes.labels : model.head.labels;
  data.problem = model.head.problem;
  data.test.rows.rows.push_back({*text, "", std::nullopt, 0, 0});
  data.test.targets.classes = {data::kNoClass};
  return data;
}

/// Returns the classifier notes of the adapter if it has some, because it was trained last;
/// otherwise those of the model's folder.
train::ClassifierNotes notes_of_model(
    const model::ModelSource& source, const std::optional<train::AdapterRequest>& adapter) {
  const train::ClassifierNotes notes =
      adapter ? train::read_notes(adapter->folder) : train::ClassifierNotes{};
  return notes.label_field.empty() ? train::read_notes(source.folder) : notes;
}

/// Throws Error (numeric) if a score is NaN.
void check_scores(const at::Tensor& scores) {
  if (scores.isnan().any().item<bool>()) {
    throw Error(
        ErrorKind::kNumeric,
        "the model's scores are NaN",
        "the weights contain NaN or Inf, or the computation overflows: check the model's folder, "
        "or compute in float32");
  }
}

}  // namespace

int64_t length_of_rows(const config::Config& config, const model::ModelConfig& model) {
  constexpr int64_t kMost = 1024;
  return config.data.sequence_length > 0 ? config.data.sequence_length
                                         : std::min(model.max_positions, kMost);
}

bool writes_labels(
    const model::ModelSource& source, const std::optional<train::AdapterRequest>& adapter) {
  return notes_of_model(source, adapter).generative.has_value();
}

ClassifiedRows classify_rows(
    config::Config config,
    const config::Origins& given,
    train::LabelsNeeded needed,
    train::RankContext& rank_context,
    const std::optional<std::string>& text) {
  const model::ModelSource source = train::find_source(config.model.path, "");
  const auto adapter = train::saved_adapter(config.lora.adapter);
  model::ModelConfig classifier = train::config_with(source.config, adapter);
  const train::ClassifierNotes notes = notes_of_model(source, adapter);
  if (notes.generative) {
    config = train::config_of_rows(std::move(config), notes.labels);
    const auto asked = config.generative.decode;
    config.generative = *notes.generative;
    if (asked) {
      config.generative.decode = asked;
    }
  }
  if (!classifier.head.classifies() && !notes.generative) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} has no classifier", source.name),
        "train one: lockstep train task.type=sequence_classification model.path=... "
        "data.train=FILE");
  }
  model::require_weights(source);
  train::apply_notes(notes, given, config.data);
  const auto tokenizer =
      train::load_tokenizer(train::tokenizer_path(config.tokenizer.path, adapter), source);
  const auto open = notes.generative ? train::open_generative_data : train::open_classifier_data;
  ClassifiedRows result{
      open(
          config,
          classifier,
          tokenizer,
          length_of_rows(config, classifier),
          rank_context.communicator,
          [&] { return labelled(config, classifier, notes, needed, text); }),
      {},
      false,
      notes,
      {},
      config.task.save_scores ? train::Shown::kAll : train::Shown::kTaken};
  if (config.task.positive_label.empty()) {
    config.task.positive_label = notes.positive_label;
  }
  train::take_judging(config.task, result.data.head, result.judging);
  result.judging.thresholds = notes.thresholds;
  const model::ProblemType problem = result.data.head.problem;
  if (!notes.generative && problem != classifier.head.problem) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} was trained for {}, but {} is requested",
            source.name,
            model::name_of(classifier.head.problem),
            model::name_of(problem)),
        "remove task.problem_type");
  }
  const train::Datasets& datasets = result.data.datasets;
  result.is_test = datasets.test != nullptr;
  const auto& rows = result.is_test ? datasets.test : datasets.validation;
  if (rows == nullptr) {
    throw Error(ErrorKind::kConfig, "no rows to classify", "give --data FILE");
  }
  train::ModelRequest request;
  request.device = rank_context.device;
  request.dtype = config.training.bf16 || config.training.bf16_full_eval
                      ? at::kBFloat16
                      : train::stored_type(source);
  request.tokenizer_size = tokenizer->vocabulary_size();
  request.is_evaluation = true;
  if (!notes.generative) {
    request.task.head = result.data.head;
  }
  request.adapter = adapter;
  request.quantization = train::quantization_of(config.quantization);
  parallel::ParallelGroups axes(
      rank_context.communicator,
      train::mesh_of(config.parallel, rank_context.size()),
      rank_context.group);
  const parallel::Plan plan = train::plan_of(config);
  const auto model = parallel::evaluation_model(train::model_spec(source, request), plan, axes);
  if (notes.generative) {
    result.classified = train::classify_written(
        train::reader_of(*model, rank_context.device),
        result.data.written,
        *rows,
        config.training.per_device_eval_batch_size,
        axes);
    result.classified.logits.div_(notes.temperature);
    check_scores(result.classified.logits);
    return result;
  }
  result.classified = train::classify(
      [&](std::span<const nn::ForwardInputs> batches) { return model->class_scores(batches); },
      *rows,
      std::ssize(result.data.head.labels),
      config.training.per_device_eval_batch_size,
      axes,
      rank_context.device);
  result.classified.logits.div_(notes.temperature);
  check_scores(result.classified.logits);
  return result;
}

}  // namespace lockstep::cli
