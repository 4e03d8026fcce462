#include "train/classification.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "config/core/cache_folder.h"
#include "data/encoder.h"
#include "data/loader.h"
#include "data/records.h"
#include "data/split.h"
#include "data/token_dataset.h"
#include "metrics/confusion_picture.h"
#include "train/inputs.h"
#include "train/world.h"

namespace lockstep::train {
namespace {

using nlohmann::ordered_json;

constexpr double kMostOfOneClass = 0.9;

/// Deals the rows of a file to train, validation and test.
void split_rows(LabelledData& data, double validation, double test, uint64_t seed) {
  data::Splitter splitter(validation, test, seed);
  std::vector<data::LabelledRow> rows = std::move(data.train.rows.rows);
  data.train.rows.rows.clear();
  for (data::LabelledRow& row : rows) {
    const data::Split split = splitter.next();
    LabelledSet& set = split == data::Split::kTrain        ? data.train
                       : split == data::Split::kValidation ? data.validation
                                                           : data.test;
    set.rows.rows.push_back(std::move(row));
  }
  for (LabelledSet* set : {&data.validation, &data.test}) {
    if (!set->rows.rows.empty() && set->rows.files.empty()) {
      set->rows.files = data.train.rows.files;
    }
  }
}

std::vector<int64_t> count_rows(const LabelledData& data) {
  std::vector<int64_t> counts(data.labels.size(), 0);
  for (const int64_t number : data.train.classes) {
    counts[static_cast<size_t>(std::max<int64_t>(number, 0))] += number >= 0 ? 1 : 0;
  }
  return counts;
}

/// Of task.class_weights. Balanced: so that the rows of each label weigh the same together, and all
/// rows together as many as they are.
std::vector<double> weights_of(const config::TaskSection& task, const LabelledData& data) {
  std::vector<double> weights;
  if (task.class_weights == std::vector<std::string>{"balanced"}) {
    const auto rows = static_cast<double>(data.train.classes.size());
    for (const int64_t count : count_rows(data)) {
      weights.push_back(
          count == 0 ? 0
                     : rows / static_cast<double>(count) / static_cast<double>(data.labels.size()));
    }
    return weights;
  }
  for (const std::string& weight : task.class_weights) {
    weights.push_back(std::stod(weight));
  }
  if (!weights.empty() && weights.size() != data.labels.size()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.class_weights has {} weights, and there are {} labels: {}",
            weights.size(),
            data.labels.size(),
            fmt::join(data.labels, ", ")),
        "give one for each label in this order, or balanced");
  }
  return weights;
}

void warn_of_classes(const LabelledData& data) {
  const std::vector<int64_t> counts = count_rows(data);
  std::vector<std::string> empty;
  for (size_t k = 0; k < counts.size(); ++k) {
    const double share =
        static_cast<double>(counts[k]) / static_cast<double>(data.train.classes.size());
    if (counts[k] == 0) {
      empty.push_back(data.labels[k]);
    } else if (share > kMostOfOneClass) {
      log_warning(
          "{:.1f}% of the training rows have the label \"{}\": accuracy says little, look at f1 "
          "and matthews_correlation",
          100 * share,
          data.labels[k]);
    }
  }
  if (!empty.empty()) {
    log_warning(
        "no training row has the label{} {}: a classifier never learns {}",
        empty.size() == 1 ? "" : "s",
        fmt::join(empty, ", "),
        empty.size() == 1 ? "it" : "them");
  }
}

/// config.json's, else the tokenizer's, else its end of text.
int32_t padding_of(const model::ModelConfig& model, const text::Tokenizer& tokenizer) {
  if (model.pad_token_id) {
    return static_cast<int32_t>(*model.pad_token_id);
  }
  if (tokenizer.pad()) {
    return *tokenizer.pad();
  }
  if (tokenizer.eos()) {
    return *tokenizer.eos();
  }
  throw Error(
      ErrorKind::kConfig,
      "nothing fills short rows: the model has no pad_token_id, and the tokenizer neither a "
      "padding "
      "token nor an end of text",
      "write \"pad_token_id\" into the model's config.json: an id that no text ends in");
}

std::string confusion_csv(const metrics::Matrix& matrix, const std::vector<std::string>& labels) {
  std::string text = "true";
  for (const std::string& label : labels) {
    text += "," + data::csv_field(label);
  }
  for (size_t row = 0; row < labels.size(); ++row) {
    text += "\n" + data::csv_field(labels[row]);
    for (const double count : matrix[row]) {
      text += fmt::format(",{:.0f}", count);
    }
  }
  return text + "\n";
}

metrics::Softmax row_of(const at::Tensor& logits, size_t row) {
  return metrics::softmax(
      logits.const_data_ptr<float>() + static_cast<int64_t>(row) * logits.size(1), logits.size(1));
}

ordered_json json_of(const LabelledData& data, const std::vector<std::string>& paths, int32_t pad) {
  ordered_json sets = ordered_json::array();
  const LabelledSet* of[] = {&data.train, &data.validation, &data.test};
  for (size_t i = 0; i < paths.size(); ++i) {
    sets.push_back({{"path", paths[i]}, {"classes", of[i]->classes}});
  }
  return {
      {"labels", data.labels}, {"weights", data.weights}, {"pad", pad}, {"sets", std::move(sets)}};
}

}  // namespace

bool classifies(const config::TaskSection& task, const model::ModelConfig& model) {
  return task.type ? *task.type == "sequence_classification"
                   : model.head.classifies() || !task.labels.empty();
}

LabelledData read_labelled_data(
    const config::Config& config, const model::ModelConfig& model, LabelsNeeded needed) {
  data::DataOptions options = data_options(config.data);
  options.label_field = config.data.label_field;
  options.text_pair_field = config.data.text_pair_field;
  options.needs_labels = needed == LabelsNeeded::kAll;
  LabelledData data;
  const auto read = [&](const std::vector<std::string>& words, std::string_view key) {
    return words.empty() ? data::LabelledRows{} : data::read_labelled(words, options, key);
  };
  data.train.rows = read(options.train, "data.train");
  data.validation.rows = read(options.validation, "data.validation");
  data.test.rows = read(options.test, "data.test");
  data.labels = !config.task.labels.empty() ? config.task.labels : model.head.labels;
  if (data.labels.empty() && data.train.rows.rows.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "the model has no classifier, and its labels are not named",
        "give a folder that a classifier was saved to, or train one: lockstep train "
        "task.type=sequence_classification data.train=FILE");
  }
  if (data.labels.empty()) {
    data.labels = data::find_labels(data.train.rows, "data.train");
  }
  split_rows(
      data,
      options.validation.empty() ? options.validation_fraction : 0,
      options.test.empty() ? options.test_fraction : 0,
      options.split_seed);
  const auto missing =
      needed == LabelsNeeded::kAll ? data::MissingLabels::kError : data::MissingLabels::kNoClass;
  for (const auto& [set, key] :
       {std::pair{&data.train, "data.train"},
        {&data.validation, "data.validation"},
        {&data.test, "data.test"}}) {
    set->classes = data::classes_of(set->rows, data.labels, key, missing);
  }
  if (!data.train.classes.empty() && needed == LabelsNeeded::kAll) {
    warn_of_classes(data);
    data.weights = weights_of(config.task, data);
  }
  return data;
}

ClassifierData open_classifier_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::function<LabelledData()>& read) {
  ClassifierData result;
  const std::string answer = on_first_rank(communicator, [&] {
    result.rows = read();
    const int32_t pad = padding_of(model, *tokenizer);
    const data::Encoder encoder = data::make_encoder(tokenizer, /*append_eos=*/false);
    const int64_t vocabulary =
        std::max({encoder.vocabulary_size, model.vocab_size, int64_t{pad} + 1});
    std::vector<std::string> paths;
    for (const LabelledSet* set :
         {&result.rows.train, &result.rows.validation, &result.rows.test}) {
      paths.push_back(
          set->classes.empty() ? ""
                               : data::write_rows(
                                     data::encode_rows(set->rows, encoder, sequence_length, pad),
                                     config::cache_folder(config.data.cache_dir),
                                     encoder.fingerprint,
                                     vocabulary,
                                     pad)
                                     .string());
    }
    return json_of(result.rows, paths, pad).dump();
  });
  const auto json = nlohmann::json::parse(answer);
  result.head = {model::HeadSpec::Kind::kClassifier, json.at("labels")};
  result.weights = json.at("weights").get<std::vector<double>>();
  result.pad = json.at("pad");
  const auto open = [&](size_t i) -> std::shared_ptr<const data::SequenceView> {
    const nlohmann::json& set = json.at("sets").at(i);
    const std::string path = set.at("path");
    return path.empty() ? nullptr
                        : std::make_shared<const data::SequenceView>(
                              data::TokenDataset::open(path),
                              sequence_length,
                              set.at("classes").get<std::vector<int64_t>>());
  };
  result.datasets = {open(0), open(1), open(2)};
  return result;
}

Classified classify(
    const ClassScorer& scorer,
    const data::SequenceView& rows,
    int64_t classes,
    int64_t batch_size,
    parallel::Axes& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  constexpr int64_t kBatchesOfAStage = 2;
  const at::NoGradGuard no_gradient;
  const auto start = std::chrono::steady_clock::now();
  Classified result;
  result.logits = at::zeros({rows.size(), classes}, at::kFloat);
  result.batches = (rows.size() + batch_size - 1) / batch_size;
  comm::Communicator& data = axes.along(mesh::Axis::kData);
  const int64_t at_once = axes.mesh().pipeline == 1 ? 1 : kBatchesOfAStage * axes.mesh().pipeline;
  std::vector<nn::ForwardInputs> inputs;
  std::vector<int64_t> begins;  // of each batch; -1: it is another rank's
  // A forward pass may gather parameters, so every rank makes as many: one whose turn finds no
  // batch left runs the last one once more.
  for (int64_t first = 0; first < result.batches; first += data.size()) {
    const bool counts = first + data.rank() < result.batches;
    const int64_t begin = std::min(first + data.rank(), result.batches - 1) * batch_size;
    std::vector<data::Draw> draws;
    for (int64_t row = begin; row < std::min(rows.size(), begin + batch_size); ++row) {
      draws.push_back({row, row});
    }
    data::MicroBatch batch = data::make_micro_batch(rows, draws);
    batch.classes.assign(batch.classes.size(), 0);  // any: it marks the position that is read
    inputs.push_back(to_device(to_inputs(batch), device));
    begins.push_back(counts ? begin : -1);
    if (std::ssize(inputs) == at_once || first + data.size() >= result.batches) {
      const std::vector<at::Tensor> logits = scorer(inputs);
      for (size_t i = 0; i < logits.size(); ++i) {
        if (begins[i] >= 0) {
          result.logits.narrow(0, begins[i], logits[i].size(0)).copy_(logits[i]);
        }
      }
      inputs.clear();
      begins.clear();
    }
    if (progress) {
      progress(std::min(first + data.rank() + 1, result.batches), result.batches);
    }
  }
  data.all_reduce(result.logits).wait();  // each row is one rank's, the others have zeros
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Judgement judge(
    const at::Tensor& logits,
    const std::vector<int64_t>& classes,
    const std::vector<std::string>& labels,
    const objective::ClassOptions& options) {
  Judgement judgement;
  metrics::Outcomes outcomes;
  double log_loss = 0, weights = 0;
  for (size_t row = 0; row < classes.size(); ++row) {
    if (classes[row] < 0) {
      continue;
    }
    const metrics::Softmax found = row_of(logits, row);
    outcomes.truth.push_back(classes[row]);
    outcomes.predicted.push_back(found.likeliest);
    const auto number = static_cast<size_t>(classes[row]);
    const double weight = options.weights.empty() ? 1 : options.weights[number];
    const double doubt = options.focal_gamma > 0
                             ? std::pow(1 - found.probabilities[number], options.focal_gamma)
                             : 1;
    judgement.loss -= weight * doubt * found.logarithms[number];
    log_loss -= found.logarithms[number];
    weights += weight;
  }
  judgement.rows = std::ssize(outcomes.truth);
  if (judgement.rows == 0) {
    return judgement;
  }
  judgement.loss /= weights > 0 ? weights : 1;
  judgement.report = metrics::make_report(outcomes, labels);
  judgement.confusion = metrics::confusion_matrix(outcomes, std::ssize(labels));
  const metrics::ClassFigures& macro = judgement.report.macro;
  const metrics::ClassFigures& weighted = judgement.report.weighted;
  // Of two classes the second is the one that is looked for.
  const metrics::ClassFigures& usual = labels.size() == 2 ? judgement.report.classes[1] : macro;
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, double>>{
           {"accuracy", metrics::accuracy(outcomes)},
           {"f1", usual.f1},
           {"precision", usual.precision},
           {"recall", usual.recall},
           {"f1_macro", macro.f1},
           {"precision_macro", macro.precision},
           {"recall_macro", macro.recall},
           {"f1_weighted", weighted.f1},
           {"precision_weighted", weighted.precision},
           {"recall_weighted", weighted.recall},
           {"balanced_accuracy", metrics::balanced_accuracy(outcomes)},
           {"matthews_correlation", metrics::matthews_correlation(outcomes)},
           {"cohen_kappa", metrics::cohen_kappa(outcomes)},
           {"log_loss", log_loss / static_cast<double>(judgement.rows)}}) {
    if (!std::isnan(value)) {
      judgement.metrics.emplace_back(name, value);
    }
  }
  return judgement;
}

std::string prediction_line(
    const LabelledSet& set,
    size_t row,
    const at::Tensor& logits,
    const std::vector<std::string>& labels,
    Shown shown) {
  const metrics::Softmax found = row_of(logits, row);
  const data::LabelledRow& read = set.rows.rows[row];
  const int64_t number = set.classes[row];
  ordered_json line{{"index", row}, {"text", read.text}};
  if (!read.pair.empty()) {
    line["pair"] = read.pair;
  }
  if (number >= 0) {
    line["label"] = labels[static_cast<size_t>(number)];
  }
  const auto likeliest = static_cast<size_t>(found.likeliest);
  line["prediction"] = labels[likeliest];
  line["probability"] = found.probabilities[likeliest];
  if (number >= 0) {
    line["loss"] = -found.logarithms[static_cast<size_t>(number)];
  }
  if (shown == Shown::kAll) {
    ordered_json all = ordered_json::object();
    for (size_t k = 0; k < labels.size(); ++k) {
      all[labels[k]] = found.probabilities[k];
    }
    line["probabilities"] = std::move(all);
  }
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void write_judgement(
    const std::filesystem::path& folder,
    const Judgement& judgement,
    const LabelledSet& set,
    const at::Tensor& logits,
    const std::vector<std::string>& labels) {
  create_folders(folder);
  const auto write = [&](const char* name, const std::string& text) {
    write_file_atomically(folder / name, text);
  };
  write("classification_report.txt", metrics::to_text(judgement.report));
  write("classification_report.json", metrics::to_json(judgement.report).dump(2) + "\n");
  write("confusion_matrix.csv", confusion_csv(judgement.confusion, labels));
  write("confusion_matrix.svg", metrics::draw_confusion(judgement.confusion, labels));
  std::string lines;
  for (size_t row = 0; row < set.classes.size(); ++row) {
    lines += prediction_line(set, row, logits, labels) + "\n";
  }
  write("predictions.jsonl", lines);
}

}  // namespace lockstep::train
