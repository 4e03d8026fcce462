#include "cli/classify.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "parallel/parallelize.h"
#include "train/checkpointing.h"
#include "train/plan.h"
#include "train/weights/model_loading.h"
#include "train/weights/quantization.h"

namespace lockstep::cli {

namespace {

train::LabelledData labelled(
    const config::Config& config,
    const model::ModelConfig& model,
    train::LabelsNeeded needed,
    const std::optional<std::string>& text) {
  if (!text) {
    return train::read_labelled_data(config, model, needed);
  }
  train::LabelledData data;
  data.labels = model.head.labels;
  data.problem = model.head.problem;
  data.test.rows.rows.push_back({*text, "", std::nullopt, 0, 0});
  data.test.targets.classes = {data::kNoClass};
  return data;
}

}  // namespace

int64_t length_of_rows(const config::Config& config, const model::ModelConfig& model) {
  constexpr int64_t kMost = 1024;
  return config.data.sequence_length > 0 ? config.data.sequence_length
                                         : std::min(model.max_positions, kMost);
}

ClassifiedRows classify_rows(
    config::Config config,
    train::LabelsNeeded needed,
    train::World& world,
    const std::optional<std::string>& text) {
  const model::ModelSource source = train::find_source(config.model.path, "");
  const auto adapter = train::saved_adapter(config.lora.adapter);
  const model::ModelConfig classifier = train::config_with(source.config, adapter);
  if (!classifier.head.classifies()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} has no classifier", source.name),
        "train one: lockstep train task.type=sequence_classification model.path=... "
        "data.train=FILE");
  }
  const train::ClassifierNotes notes = train::read_notes(source.folder);
  train::apply_notes(notes, config.data);
  const auto tokenizer = train::load_tokenizer(config.tokenizer.path, source);
  ClassifiedRows result{
      train::open_classifier_data(
          config,
          classifier,
          tokenizer,
          length_of_rows(config, classifier),
          world.communicator,
          [&] { return labelled(config, classifier, needed, text); }),
      {},
      false,
      notes};
  const model::ProblemType problem = result.data.head.problem;
  if (problem != source.config.head.problem) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} was trained for {}, and {} is asked for",
            source.name,
            model::name_of(source.config.head.problem),
            model::name_of(problem)),
        "leave task.problem_type out");
  }
  const train::Datasets& datasets = result.data.datasets;
  result.is_test = datasets.test != nullptr;
  const auto& rows = result.is_test ? datasets.test : datasets.validation;
  if (rows == nullptr) {
    throw Error(ErrorKind::kConfig, "no rows are named", "give --data FILE");
  }
  train::ModelRequest request;
  request.device = world.device;
  request.dtype = config.training.bf16 || config.training.bf16_full_eval
                      ? at::kBFloat16
                      : train::stored_type(source);
  request.tokenizer_size = tokenizer->vocabulary_size();
  request.task.head = result.data.head;
  request.adapter = adapter;
  request.quantization = train::quantization_of(config.quantization);
  parallel::Axes axes(
      world.communicator, train::mesh_of(config.parallel, world.size()), world.group);
  const parallel::Plan plan = train::plan_of(config);
  const auto model = parallel::evaluation_model(train::model_spec(source, request), plan, axes);
  result.classified = train::classify(
      [&](std::span<const nn::ForwardInputs> batches) { return model->class_scores(batches); },
      *rows,
      std::ssize(result.data.head.labels),
      config.training.per_device_eval_batch_size,
      axes,
      world.device);
  return result;
}

}  // namespace lockstep::cli
