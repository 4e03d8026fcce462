// Reads the labelled rows of classifiers and finds their labels, class weights and targets.
#include "train/batches/labelled_data.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/nearest.h"
#include "config/core/cache_folder.h"
#include "config/core/class_weights.h"
#include "config/core/scalar.h"
#include "config/tasks.h"
#include "data/encoder.h"
#include "data/split.h"
#include "data/token_dataset.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {
namespace {

using data::TargetForm;
using model::ProblemType;
using nlohmann::ordered_json;

constexpr double kMostOfOneClass = 0.9;

/// Returns the name of the training rows for error messages.
std::string train_key(const config::Config& config) {
  return config.data.mixture.empty() ? "data.train" : "data.mixture";
}

/// Splits the training rows into train, validation and test. The fractions are the same for each
/// source.
void split_rows(LabelledData& data, double validation, double test, uint64_t seed) {
  data::Splitter splitter(validation, test, seed);
  std::vector<data::LabelledRow> rows = std::move(data.train.rows.rows);
  data.train.rows.rows.clear();
  size_t source = 0;
  for (data::LabelledRow& row : rows) {
    while (source < data.source_files.size() && row.file >= data.source_files[source]) {
      splitter = data::Splitter(validation, test, seed);
      ++source;
    }
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

/// Returns true if no row has a label. Rows are also unlabelled if all labels are -1 and -1 is not
/// a label name; these labels are then removed.
bool hide_labels(LabelledSet& set, const std::vector<std::string>& labels) {
  std::vector<data::LabelledRow>& rows = set.rows.rows;
  const auto is_told = [&](const data::LabelledRow& row) {
    return row.label && (row.label->is_list || row.label->words.size() != 1 ||
                         config::to_double(row.label->words.front()) != -1.0);
  };
  if (rows.empty() || std::ranges::find(labels, "-1") != labels.end() ||
      std::ranges::any_of(rows, is_told)) {
    return false;
  }
  for (data::LabelledRow& row : rows) {
    row.label.reset();
  }
  return true;
}

TargetForm form_of(ProblemType problem) {
  return problem == ProblemType::kRegression   ? TargetForm::kNumbers
         : problem == ProblemType::kMultiLabel ? TargetForm::kLabels
                                               : TargetForm::kClass;
}

ProblemType problem_of(TargetForm form) {
  return form == TargetForm::kNumbers  ? ProblemType::kRegression
         : form == TargetForm::kLabels ? ProblemType::kMultiLabel
                                       : ProblemType::kSingleLabel;
}

/// Returns the problem type: task.problem_type, else the model's, else the type that the rows
/// suggest.
ProblemType find_problem(
    const config::Config& config, const model::ModelConfig& model, const LabelledData& data) {
  if (config.task.problem_type) {
    return *model::parse_problem_type(*config.task.problem_type);
  }
  if (model.head.classifies() && config.task.labels.empty()) {
    return model.head.problem;
  }
  const bool trains = !data.train.rows.rows.empty(), validates = !data.validation.rows.rows.empty();
  return problem_of(data::find_form(
      (trains      ? data.train
       : validates ? data.validation
                   : data.test)
          .rows,
      config.data.label_field.size(),
      trains      ? train_key(config)
      : validates ? "data.validation"
                  : "data.test"));
}

/// Returns the names of the outputs: task.labels, else the model's labels, else the field names,
/// else the labels in the training rows.
std::vector<std::string> find_names(
    const config::Config& config, const model::ModelConfig& model, const LabelledData& data) {
  const std::vector<std::string>& fields = config.data.label_field;
  if (!config.task.labels.empty()) {
    return config.task.labels;
  }
  if (model.head.classifies()) {
    return model.head.labels;
  }
  if (fields.size() > 1) {
    return fields;
  }
  return data.problem == ProblemType::kRegression
             ? std::vector<std::string>{"LABEL_0"}  // the default name in transformers
             : data::find_labels(data.train.rows, form_of(data.problem), train_key(config));
}

/// Returns the label fields. If they have the same names as the model's outputs, they are in the
/// same order.
std::vector<std::string> ordered_fields(
    std::vector<std::string> fields, const config::TaskSection& task, const model::HeadSpec& head) {
  const auto set_of = [](const std::vector<std::string>& names) {
    return std::set<std::string>(names.begin(), names.end());
  };
  const bool same = head.classifies() && task.labels.empty() && fields.size() > 1 &&
                    set_of(fields) == set_of(head.labels);
  return same ? head.labels : fields;
}

void check_outputs(const LabelledData& data, const std::vector<std::string>& fields) {
  const bool by_field = fields.size() > 1 || data.problem == ProblemType::kRegression;
  if (by_field && fields.size() != data.labels.size()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "data.label_field names {} field{}, but there are {} outputs: {}",
            fields.size(),
            fields.size() == 1 ? "" : "s",
            data.labels.size(),
            fmt::join(data.labels, ", ")),
        "name one field per output, in this order: data.label_field=[...]");
  }
  if (fields.size() > 1 && data.problem == ProblemType::kSingleLabel) {
    throw Error(
        ErrorKind::kConfig,
        "data.label_field names several fields, but a row has one label",
        "name one field, or set task.problem_type=multi_label_classification");
  }
}

/// Returns the number of training rows per label.
std::vector<int64_t> count_rows(const LabelledData& data) {
  const size_t labels = data.labels.size();
  std::vector<int64_t> counts(labels, 0);
  const data::RowTargets& targets = data.train.targets;
  for (size_t row = 0; row < targets.classes.size(); ++row) {
    const int64_t number = targets.classes[row];
    if (targets.outputs.empty() && number >= 0) {
      counts[static_cast<size_t>(number)] += 1;
    }
    for (size_t k = 0; !targets.outputs.empty() && k < labels; ++k) {
      counts[k] += targets.outputs[row * labels + k] > 0 ? 1 : 0;
    }
  }
  return counts;
}

/// Parses class weights that task.class_weights gives by name. Labels that are not named get weight
/// 1.
std::vector<double> named_weights(
    const config::TaskSection& task, const std::vector<std::string>& labels) {
  std::vector<double> weights(labels.size(), 1);
  for (const std::string& text : task.class_weights) {
    const auto [label, weight] = config::named_weight(text).value();
    const auto at = std::ranges::find(labels, label);
    if (at == labels.end()) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "task.class_weights: unknown label \"{}\".{}", label, did_you_mean(label, labels)),
          fmt::format("use labels of {}", fmt::join(labels, ", ")));
    }
    weights[static_cast<size_t>(at - labels.begin())] = weight;
  }
  return weights;
}

/// Returns the class weights from task.class_weights. With `balanced`, the rows of every label have
/// the same total weight, and the weights of all rows sum to the number of rows. For multi-label
/// problems, the rows with a label have the same total weight as the rows without it.
std::vector<double> weights_of(const config::TaskSection& task, const LabelledData& data) {
  std::vector<double> weights;
  if (task.class_weights == std::vector<std::string>{"balanced"}) {
    const auto rows = static_cast<double>(data.train.targets.classes.size());
    const auto labels = static_cast<double>(data.labels.size());
    for (const int64_t count : count_rows(data)) {
      const auto own = static_cast<double>(count);
      weights.push_back(
          data.problem == ProblemType::kMultiLabel ? (count == 0 ? 1 : (rows - own) / own)
          : count == 0                             ? 0
                                                   : rows / own / labels);
    }
    return weights;
  }
  if (!task.class_weights.empty() && config::named_weight(task.class_weights.front())) {
    weights = named_weights(task, data.labels);
  } else {
    for (const std::string& weight : task.class_weights) {
      weights.push_back(config::to_double(weight).value());
    }
  }
  if (!weights.empty() && weights.size() != data.labels.size()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.class_weights has {} weights, but there are {} labels: {}",
            weights.size(),
            data.labels.size(),
            fmt::join(data.labels, ", ")),
        "give one weight per label in this order, or balanced");
  }
  if (!weights.empty() && std::ranges::all_of(weights, [](double each) { return each == 0; })) {
    throw Error(
        ErrorKind::kConfig,
        "the weights of task.class_weights are all 0, so nothing would be learned",
        "give at least one label a weight above 0");
  }
  return weights;
}

void warn_of_classes(const LabelledData& data) {
  const std::vector<int64_t> counts = count_rows(data);
  std::vector<std::string> empty;
  for (size_t k = 0; k < counts.size(); ++k) {
    const double share =
        static_cast<double>(counts[k]) / static_cast<double>(data.train.targets.classes.size());
    if (counts[k] == 0) {
      empty.push_back(data.labels[k]);
    } else if (share > kMostOfOneClass) {
      log_warning(
          "{:.1f}% of the training rows have the label \"{}\": accuracy is not informative, use f1 "
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

/// Warns if all values are whole numbers. They may be class numbers that a tool wrote as 1.0.
void warn_of_numbers(const LabelledData& data) {
  const std::vector<float>& outputs = data.train.targets.outputs;
  const bool are_whole =
      std::all_of(outputs.begin(), outputs.end(), [](float x) { return x == std::floor(x); });
  if (are_whole && !outputs.empty()) {
    log_warning(
        "the labels are whole numbers written with a fraction and are treated as regression "
        "targets: set task.problem_type=single_label_classification to use them as classes");
  }
}

/// Returns the padding token: pad_token_id of config.json, else the tokenizer's padding token, else
/// its end-of-text token.
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
      "no padding token: the model has no pad_token_id, and the tokenizer has neither a padding "
      "token nor an end-of-text token",
      "add \"pad_token_id\" to the model's config.json, with an id that does not end any text");
}

data::Encoder encoder_of(
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int32_t pad) {
  if (model.bidirectional) {
    return data::make_row_encoder(tokenizer);
  }
  if (!model.is_encoder_decoder()) {
    return data::make_encoder(tokenizer, /*append_eos=*/false);
  }
  if (model.eos_token_ids.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "an encoder-decoder classifier reads the end-of-text token, but the model has no "
        "eos_token_id",
        "add \"eos_token_id\" to the model's config.json");
  }
  const auto end = static_cast<int32_t>(model.eos_token_ids.front());
  if (end == pad) {
    log_warning(
        "the padding token {} is also the end-of-text token: transformers cannot find the end of "
        "the text in padded batches, and must read one row at a time",
        pad);
  }
  return data::make_source_encoder(tokenizer, end);
}

ordered_json json_of(const LabelledData& data, ordered_json sets, int32_t pad) {
  return {
      {"labels", data.labels},
      {"problem", model::name_of(data.problem)},
      {"weights", data.weights},
      {"pad", pad},
      {"sets", std::move(sets)}};
}

}  // namespace

std::vector<LabelledSet> LabelledData::train_by_source() const {
  if (source_files.empty()) {
    return {train};
  }
  std::vector<LabelledSet> sets(source_files.size());
  const size_t outputs = train.targets.outputs.size() / std::max<size_t>(1, train.rows.rows.size());
  size_t source = 0;
  for (size_t i = 0; i < train.rows.rows.size(); ++i) {
    while (train.rows.rows[i].file >= source_files[source]) {
      ++source;
    }
    LabelledSet& set = sets[source];
    set.rows.rows.push_back(train.rows.rows[i]);
    set.targets.classes.push_back(train.targets.classes[i]);
    const auto begin = train.targets.outputs.begin() + static_cast<std::ptrdiff_t>(i * outputs);
    set.targets.outputs.insert(
        set.targets.outputs.end(), begin, begin + static_cast<std::ptrdiff_t>(outputs));
  }
  return sets;
}

bool classifies(const config::Config& config, const model::ModelConfig& model) {
  return config::classifies(config, model.head.classifies());
}

LabelledData read_labelled_data(
    const config::Config& config, const model::ModelConfig& model, LabelsNeeded needed) {
  data::DataOptions options = data_options(config.data);
  options.label_fields = ordered_fields(config.data.label_field, config.task, model.head);
  options.label_delimiter = config.data.label_delimiter;
  options.text_pair_field = config.data.text_pair_field;
  options.needs_labels = needed == LabelsNeeded::kAll;
  LabelledData data;
  const auto read = [&](const std::vector<std::string>& words, std::string_view key) {
    return words.empty() ? data::LabelledRows{} : data::read_labelled(words, options, key);
  };
  const auto read_test = [&](const std::vector<std::string>& words, std::string_view key) {
    data::DataOptions any = options;
    any.needs_labels = false;
    return words.empty() ? data::LabelledRows{} : data::read_labelled(words, any, key);
  };
  data.train.rows = read(options.train, "data.train");
  for (const config::MixtureSource& source : sources_of(config.data)) {
    data::LabelledRows rows = read(source.files, source_key(source));
    const size_t files = data.train.rows.files.size();
    data.train.rows.files.insert(data.train.rows.files.end(), rows.files.begin(), rows.files.end());
    for (data::LabelledRow& row : rows.rows) {
      row.file += files;
      data.train.rows.rows.push_back(std::move(row));
    }
    data.source_files.push_back(data.train.rows.files.size());
  }
  data.validation.rows = read(options.validation, "data.validation");
  data.validation_mm.rows = read(options.validation_mm, "data.validation_mm");
  data.test.rows = read_test(options.test, "data.test");
  data.test_mm.rows = read_test(options.test_mm, "data.test_mm");
  if (!model.head.classifies() && config.task.labels.empty() && data.train.rows.rows.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "the model has no classification head, and its labels are not set",
        "use the folder of a saved classifier, or train one: lockstep train "
        "task.type=sequence_classification data.train=FILE");
  }
  data.problem = find_problem(config, model, data);
  data.labels = find_names(config, model, data);
  if (needed == LabelsNeeded::kAll) {
    check_outputs(data, options.label_fields);
  }
  split_rows(
      data,
      options.validation.empty() ? options.validation_fraction : 0,
      options.test.empty() ? options.test_fraction : 0,
      options.split_seed);
  for (const auto& [set, key, may_be_hidden] :
       {std::tuple{&data.train, train_key(config), false},
        {&data.validation, "data.validation", false},
        {&data.validation_mm, "data.validation_mm", false},
        {&data.test, "data.test", true},
        {&data.test_mm, "data.test_mm", true}}) {
    const bool is_hidden = may_be_hidden && hide_labels(*set, data.labels);
    if (is_hidden && needed == LabelsNeeded::kAll) {
      log_info("{} has no labels: predictions are written, metrics are not computed", key);
    }
    set->targets = data::targets_of(
        set->rows,
        form_of(data.problem),
        options.label_fields.size(),
        data.labels,
        key,
        needed == LabelsNeeded::kAll && !is_hidden ? data::MissingLabels::kError
                                                   : data::MissingLabels::kNoClass);
  }
  if (!data.train.targets.classes.empty() && needed == LabelsNeeded::kAll) {
    if (data.problem != ProblemType::kRegression) {
      warn_of_classes(data);
    } else if (!config.task.problem_type && !model.head.classifies()) {
      warn_of_numbers(data);
    }
    data.weights = weights_of(config.task, data);
  }
  return data;
}

std::vector<data::RowIds> ids_of_rows(
    const data::LabelledRows& rows,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length) {
  const int32_t pad = padding_of(model, *tokenizer);
  return data::encode_rows(rows, encoder_of(model, tokenizer, pad), sequence_length, pad);
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
    const data::Encoder encoder = encoder_of(model, tokenizer, pad);
    const int64_t vocabulary =
        std::max({encoder.vocabulary_size, model.vocab_size, int64_t{pad} + 1});
    // One entry per source, then one for the validation and test sets.
    ordered_json sets = ordered_json::array();
    const auto add = [&](const LabelledSet& set) {
      const std::string path = set.targets.classes.empty()
                                   ? ""
                                   : data::write_rows(
                                         data::encode_rows(set.rows, encoder, sequence_length, pad),
                                         config::cache_folder(config.data.cache_dir),
                                         encoder.fingerprint,
                                         vocabulary,
                                         pad)
                                         .string();
      sets.push_back(
          {{"path", path}, {"classes", set.targets.classes}, {"outputs", set.targets.outputs}});
    };
    for (const LabelledSet& set : result.rows.train_by_source()) {
      add(set);
    }
    add(result.rows.validation);
    add(result.rows.test);
    add(result.rows.validation_mm);
    add(result.rows.test_mm);
    return json_of(result.rows, std::move(sets), pad).dump();
  });
  const auto json = nlohmann::json::parse(answer);
  result.head = {
      model::HeadSpec::Kind::kClassifier,
      json.at("labels"),
      *model::parse_problem_type(json.at("problem").get<std::string>())};
  result.weights = json.at("weights").get<std::vector<double>>();
  result.pad = json.at("pad");
  const bool packs = packs_rows(config, model);
  const bool tells_segments = model.token_types > 1 && tokenizer->row_template().tells_segments;
  const auto open = [&](size_t i) -> std::shared_ptr<const data::SequenceView> {
    const nlohmann::json& set = json.at("sets").at(i);
    const std::string path = set.at("path");
    if (path.empty()) {
      return nullptr;
    }
    auto rows = std::make_shared<data::SequenceView>(
        data::TokenDataset::open(path),
        sequence_length,
        set.at("classes").get<std::vector<int64_t>>(),
        set.at("outputs").get<std::vector<float>>());
    if (model.bidirectional) {
      rows->set_encoder({.tells_segments = tells_segments});
    }
    if (model.is_encoder_decoder()) {
      rows->set_decoder_start(model.decoder_start_token_id);
    }
    rows->set_packed(packs);
    return rows;
  };
  const std::vector<config::MixtureSource> sources = sources_of(config.data);
  std::vector<std::shared_ptr<const data::SequenceView>> trained;
  constexpr size_t kOthers = 4;
  for (size_t i = 0; i + kOthers < json.at("sets").size(); ++i) {
    trained.push_back(open(i));
  }
  const size_t next = trained.size();
  result.datasets = {
      mixed_rows(sources, trained), open(next), open(next + 1), open(next + 2), open(next + 3)};
  if (communicator.rank() == 0) {
    tell_mixture(result.datasets, config.data);
  }
  return result;
}

}  // namespace lockstep::train
