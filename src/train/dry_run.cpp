// Summarizes a run without running it (`--dry-run`).
#include "train/dry_run.h"

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "config/tasks.h"
#include "data/encoder.h"
#include "data/inputs.h"
#include "data/tokenize.h"
#include "model/description.h"
#include "monitor/progress.h"
#include "train/batches/labelled_data.h"
#include "train/batches/row_choice.h"
#include "train/checkpointing.h"
#include "train/forecast.h"
#include "train/output_folder.h"
#include "train/plan.h"
#include "train/run_lines.h"
#include "train/tasks/generative.h"
#include "train/tasks/preference.h"
#include "train/tasks/unlearning.h"
#include "train/weights/adapters.h"
#include "train/weights/model_loading.h"
#include "train/weights/quantization.h"

namespace lockstep::train {
namespace {

/// Number of all parameters and of trained parameters.
struct Parameters {
  int64_t all = 0, trained = 0;
  std::string text;  // lines about adapters and packed weights, if any
};

Parameters count_parameters(const config::Config& config, const model::ModelConfig& model) {
  Parameters counts{model::parameter_count(model), model::parameter_count(model), ""};
  const auto request = adapter_request(config.lora);
  const auto packed = packed_as(model, config.quantization);
  check_trainable(packed, request.has_value());
  if (!request) {
    return counts;
  }
  const model::Adapters adapters = find_adapters(*request, model);
  counts.trained = model::trained_count(adapters, model);
  counts.text = fmt::format(
      "adapter     {} linears, {} trained parameters\n",
      adapters.of_layers.size(),
      monitor::format_count(static_cast<double>(counts.trained)));
  if (packed) {
    counts.text += fmt::format(
        "packed      {} linears in {}\n",
        model::packed_linears(*packed, model).size(),
        text_of(*packed));
  }
  return counts;
}

/// Reads the first rows of each set, to find mistakes such as broken JSON and missing fields.
void read_first_rows(
    const config::Config& config, const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  constexpr int64_t kRows = 100;
  data::DataOptions options = data_options(config.data);
  options.chat = chat_template_of(config.data, *tokenizer);
  const data::Encoder encoder = data::make_encoder(tokenizer, config.data.append_eos);
  const auto read = [&](const std::vector<std::string>& files, const std::string& key) {
    if (!files.empty()) {
      const auto inputs = data::find_inputs(files, options.format, key);
      (void)data::encode_first(inputs, options, encoder, /*skip=*/0, kRows);
    }
  };
  if (config.data.mixture.empty()) {
    read(options.train, "data.train");
  }
  for (const config::MixtureSource& source : config.data.mixture) {
    read(source.files, source_key(source));
  }
  read(options.validation, "data.validation");
  read(options.test, "data.test");
}

}  // namespace

std::string dry_run(config::Config config, int64_t ranks) {
  const config::TrainingSection& training = config.training;
  const model::ModelSource source = find_source(config.model.path, config.model.preset);
  if (source.kind == model::ModelSource::Kind::kHub) {
    model::require_weights(source);
  }
  check_output(config, source);
  const auto tokenizer = load_tokenizer(config.tokenizer.path, source);
  if (tokenizer->vocabulary_size() > source.config.vocab_size && !config.model.resize_embeddings) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the tokenizer has {} entries, but the embedding of {} only has {}",
            tokenizer->vocabulary_size(),
            source.name,
            source.config.vocab_size),
        "set model.resize_embeddings=true, or use the model's tokenizer");
  }
  check_mixture(config, source.config);
  const parallel::Plan plan = plan_of(config);
  const auto stages = static_cast<int>(config.parallel.pipeline);
  parallel::check_plan(plan, mesh_of(config.parallel, static_cast<int>(ranks)));
  const int64_t length = sequence_length_of(config, source.config);
  check_plan(config.parallel, length);
  warn_of_positions(source.config, length);
  const RowChoice rows = choose_rows(config, source.config);
  config.data = rows.section;
  // Throws if the stages or the schedule are invalid.
  const auto parts =
      parallel::parts_of_rank(source.config, plan.pipeline, 0, stages, plan.sequence_length);
  const data::DataOptions options = data_options(config.data);
  std::string labels;
  model::ModelConfig model = source.config;
  const bool is_written = config::writes_labels(config.task);
  if (is_written || classifies(config, source.config)) {
    const LabelledData data =
        read_labelled_data(is_written ? config_of_rows(config) : config, source.config);
    model = is_written ? model
                       : model::with_head(
                             source.config,
                             {model::HeadSpec::Kind::kClassifier, data.labels, data.problem});
    labels = fmt::format(
        "task        {}, {} {}, {} training rows, {} validation rows, {} test rows\n",
        model::name_of(data.problem),
        data.labels.size(),
        data.problem == model::ProblemType::kRegression ? "outputs" : "labels",
        data.train.targets.classes.size(),
        data.validation.targets.classes.size(),
        data.test.targets.classes.size());
  } else if (trains_on_answers(config.task)) {
    labels = fmt::format(
        "task        {}\n",
        count_preferences(config, source.config, tokenizer, length).text(config));
  } else if (unlearns(config.task)) {
    labels = fmt::format(
        "task        {}\n",
        count_unlearning(config, source.config, tokenizer, length).text(config.unlearning));
  } else {
    check_task(config.task, source.config);
    (void)masking_of(config, source.config, *tokenizer);
    check_documents(source.config, options);
    read_first_rows(config, tokenizer);
  }
  const auto files_of = [&](const std::vector<std::string>& words, std::string_view key) {
    return words.empty() ? size_t{0} : data::find_inputs(words, options.format, key).size();
  };
  size_t train_files = files_of(options.train, "data.train");
  for (const config::MixtureSource& source : config.data.mixture) {
    train_files += files_of(source.files, source_key(source));
  }
  const Parameters parameters = count_parameters(config, model);
  const mesh::Mesh mesh = mesh_of(config.parallel, static_cast<int>(ranks));
  std::string text;
  text += fmt::format(
      "model       {} ({}, {} layers, width {}, vocabulary {}), {} parameters, {} weights\n",
      source.name,
      model::family_name(source.config.family),
      source.config.layers,
      source.config.hidden_size,
      source.config.vocab_size,
      monitor::format_count(static_cast<double>(parameters.all)),
      source.has_weights ? "its own" : "random");
  text += labels + parameters.text;
  text += fmt::format("tokenizer   {} entries\n", tokenizer->vocabulary_size());
  text += fmt::format(
      "data        {} training files, {} validation files\n",
      train_files,
      files_of(options.validation, "data.validation"));
  text += rows.note.empty() ? "" : fmt::format("rows        {}\n", rows.note);
  text += fmt::format(
      "plan        {} rank{}; {}\n",
      ranks,
      ranks == 1 ? "" : "s",
      plan_line(config, mesh, packed_as(model, config.quantization)));
  text += fmt::format(
      "batch       {}; sequences of {} tokens{}\n",
      batch_line(training, mesh.data),
      length,
      training.max_steps > 0 ? fmt::format("; {} steps", training.max_steps) : "");
  if (stages > 1) {
    text += fmt::format(
        "pipeline    {} ranks, {} stage{} each, schedule {}\n",
        stages,
        parts.size(),
        parts.size() > 1 ? "s" : "",
        config.parallel.schedule);
  }
  if (const auto forecast = forecast_without_ranks(config, model, static_cast<int>(ranks))) {
    text += fmt::format("memory      {}\n", describe(*forecast));
  }
  text += fmt::format("output      {}\n", training.output_dir);
  return text;
}

}  // namespace lockstep::train
