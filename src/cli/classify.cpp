#include "cli/classify.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "parallel/parallelize.h"
#include "train/checkpointing.h"
#include "train/model_loading.h"
#include "train/plan.h"

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
  data.test.rows.rows.push_back({*text, "", std::nullopt, 0, 0});
  data.test.classes = {data::kNoClass};
  return data;
}

}  // namespace

int64_t length_of_rows(const config::Config& config, const model::ModelConfig& model) {
  constexpr int64_t kMost = 1024;
  return config.data.sequence_length > 0 ? config.data.sequence_length
                                         : std::min(model.max_positions, kMost);
}

ClassifiedRows classify_rows(
    const config::Config& config,
    train::LabelsNeeded needed,
    train::World& world,
    const std::optional<std::string>& text) {
  const model::ModelSource source = train::find_source(config.model.path, "");
  if (!source.config.head.classifies()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} has no classifier", source.name),
        "train one: lockstep train task.type=sequence_classification model.path=... "
        "data.train=FILE");
  }
  if (source.config.head.labels.size() == 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is a reward model: its head has one class, and gives no labels", source.name),
        "go on training it with task.type=reward_model, or open it in transformers: "
        "AutoModelForSequenceClassification");
  }
  const auto tokenizer = train::load_tokenizer(config.tokenizer.path, source);
  ClassifiedRows result{
      train::open_classifier_data(
          config,
          source.config,
          tokenizer,
          length_of_rows(config, source.config),
          world.communicator,
          [&] { return labelled(config, source.config, needed, text); }),
      {},
      false};
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
