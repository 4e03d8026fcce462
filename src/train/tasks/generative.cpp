#include "train/tasks/generative.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/core/cache_folder.h"
#include "data/encoder.h"
#include "data/token_dataset.h"
#include "train/machine/world.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kLabel = "{label}";

[[noreturn]] void refuse_template(const std::string& text, const std::string& why) {
  throw Error(
      ErrorKind::kConfig,
      fmt::format("generative.prompt_template \"{}\": {}", text, why),
      "write it as {text}\\nLabel: {label}, with {pair} for data.text_pair_field");
}

/// Where a text of at most so many bytes can be cut without cutting a character.
size_t whole_characters(std::string_view text, size_t bytes) {
  bytes = std::min(bytes, text.size());
  while (bytes > 0 && bytes < text.size() &&
         (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) {
    --bytes;
  }
  return bytes;
}

/// The rows of a set for training.
std::vector<data::RowIds> learned_rows(const LabelledSet& set, const PromptForm& form) {
  std::vector<data::RowIds> rows;
  for (size_t i = 0; i < set.rows.rows.size(); ++i) {
    data::RowIds& row = rows.emplace_back();
    row.ids = form.prompt(set.rows.rows[i]);
    row.first_segment = std::ssize(row.ids);
    const auto& label = form.label(static_cast<size_t>(set.targets.classes[i]));
    row.ids.insert(row.ids.end(), label.begin(), label.end());
  }
  return rows;
}

/// Each row with every label.
std::vector<data::RowIds> candidates(
    const LabelledSet& set, const PromptForm& form, size_t labels) {
  std::vector<data::RowIds> rows;
  for (const data::LabelledRow& row : set.rows.rows) {
    const std::vector<int32_t> prompt = form.prompt(row);
    for (size_t k = 0; k < labels; ++k) {
      data::RowIds& candidate = rows.emplace_back(data::RowIds{prompt, std::ssize(prompt)});
      candidate.ids.insert(candidate.ids.end(), form.label(k).begin(), form.label(k).end());
    }
  }
  return rows;
}

std::vector<data::RowRole> roles_of(const std::vector<int64_t>& classes, size_t labels) {
  std::vector<data::RowRole> roles;
  for (const int64_t right : classes) {
    for (size_t k = 0; k < labels; ++k) {
      roles.push_back(std::cmp_equal(k, right) ? data::RowRole::kChosen : data::RowRole::kRejected);
    }
  }
  return roles;
}

void check_decoder(const model::ModelConfig& model) {
  if (model.bidirectional || model.is_encoder_decoder() || model.head.classifies()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.type=generative_classification writes labels with a decoder's language model, "
            "and "
            "{} is {}",
            model::family_name(model.family),
            model.head.classifies() ? "a classifier here"
            : model.bidirectional   ? "an encoder"
                                    : "an encoder and a decoder"),
        "use task.type=sequence_classification, or another model");
  }
}

}  // namespace

PromptForm::PromptForm(
    const config::GenerativeSection& section,
    const std::vector<std::string>& labels,
    const data::Encoder& encoder,
    int64_t limit)
    : encoder_(encoder) {
  const std::string& text = section.prompt_template;
  if (!text.ends_with(kLabel) || text.find(kLabel) + kLabel.size() != text.size()) {
    refuse_template(text, "{label} has to be its end, and to be there once");
  }
  std::string before = text.substr(0, text.size() - kLabel.size());
  const size_t end = before.find_last_not_of(' ') + 1;
  const std::string spaces = before.substr(end);
  before.resize(end);
  for (size_t at = 0; at < before.size();) {
    const size_t open = before.find('{', at), close = before.find('}', open);
    if (open == std::string::npos || close == std::string::npos) {
      parts_.push_back({before.substr(at)});
      break;
    }
    const std::string name = before.substr(open + 1, close - open - 1);
    if (name != "text" && name != "pair") {
      refuse_template(text, fmt::format("there is no field {{{}}}", name));
    }
    parts_.push_back(
        {before.substr(at, open - at), name == "text" ? Part::Field::kText : Part::Field::kPair});
    at = close + 1;
  }
  const std::vector<std::string>& texts =
      section.verbalizers.empty() ? labels : section.verbalizers;
  if (texts.size() != labels.size()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "generative.verbalizers: {} texts of {} labels: {}",
            texts.size(),
            labels.size(),
            fmt::join(labels, ", ")),
        "give one for each label, in this order");
  }
  size_t longest = 0;
  std::set<std::vector<int32_t>> seen;
  for (const std::string& each : texts) {
    std::vector<int32_t> ids = encoder.encode(spaces + each);
    if (ids.empty() || !seen.insert(ids).second) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the label \"{}\" {}",
              each,
              ids.empty() ? "has no token" : "is encoded as another one is"),
          "give each label a text of its own with generative.verbalizers");
    }
    if (encoder.end) {
      ids.push_back(*encoder.end);
    }
    longest = std::max(longest, ids.size());
    lengths_.push_back(
        section.normalize == "token"  ? static_cast<double>(ids.size())
        : section.normalize == "byte" ? static_cast<double>(each.size())
                                      : 1.0);
    labels_.push_back(std::move(ids));
  }
  most_ = limit - static_cast<int64_t>(longest);
  if (std::ssize(encode("", "")) >= most_) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "a row of {} tokens has no place for a text: the template has {}, the longest label {}",
            limit,
            encode("", "").size(),
            longest),
        "raise data.sequence_length");
  }
}

std::vector<int32_t> PromptForm::encode(std::string_view text, std::string_view pair) const {
  std::string whole;
  for (const Part& part : parts_) {
    whole += part.literal;
    whole += part.field == Part::Field::kText   ? text
             : part.field == Part::Field::kPair ? pair
                                                : std::string_view();
  }
  std::vector<int32_t> ids = encoder_.encode(whole);
  if (encoder_.begin) {
    ids.insert(ids.begin(), *encoder_.begin);
  }
  if (ids.empty()) {
    ids.push_back(encoder_.end.value_or(0));  // the first token is predicted from something
  }
  return ids;
}

std::vector<int32_t> PromptForm::prompt(const data::LabelledRow& row) const {
  std::vector<int32_t> ids = encode(row.text, row.pair);
  if (std::ssize(ids) <= most_) {
    return ids;
  }
  // The most bytes that fit, by halving; with all of the pair if that is possible.
  const auto longest = [&](std::string_view field, const auto& encoded) {
    size_t fits = 0, fails = field.size() + 1;
    while (fails - fits > 1) {
      const size_t middle = fits + (fails - fits) / 2;
      const bool holds =
          std::ssize(encoded(field.substr(0, whole_characters(field, middle)))) <= most_;
      (holds ? fits : fails) = middle;
    }
    return field.substr(0, whole_characters(field, fits));
  };
  const auto with_text = [&](std::string_view text) { return encode(text, row.pair); };
  const auto with_pair = [&](std::string_view pair) { return encode("", pair); };
  return std::ssize(with_text("")) <= most_ ? with_text(longest(row.text, with_text))
                                            : with_pair(longest(row.pair, with_pair));
}

config::Config config_of_rows(config::Config config, const std::vector<std::string>& labels) {
  config.task.problem_type = "single_label_classification";
  if (!labels.empty()) {
    config.task.labels = labels;
  }
  return config;
}

ClassifierData open_generative_data(
    const config::Config& config,
    const model::ModelConfig& model,
    const std::shared_ptr<const text::Tokenizer>& tokenizer,
    int64_t sequence_length,
    comm::Communicator& communicator,
    const std::function<LabelledData()>& read) {
  check_decoder(model);
  ClassifierData result;
  const auto answer = nlohmann::json::parse(on_first_rank(communicator, [&] {
    result.rows = read();
    const data::Encoder encoder = data::make_encoder(tokenizer);
    const std::vector<std::string>& labels = result.rows.labels;
    const PromptForm form(config.generative, labels, encoder, sequence_length);
    const int32_t pad = encoder.pad ? *encoder.pad : encoder.end.value_or(0);
    const auto write = [&](const LabelledSet& set, bool is_learned) -> std::string {
      return set.targets.classes.empty()
                 ? ""
                 : data::write_rows(
                       is_learned ? learned_rows(set, form) : candidates(set, form, labels.size()),
                       config::cache_folder(config.data.cache_dir),
                       encoder.fingerprint,
                       std::max(encoder.vocabulary_size, model.vocab_size),
                       pad)
                       .string();
    };
    return nlohmann::json{
        {"labels", labels},
        {"lengths", form.lengths()},
        {"paths",
         {write(result.rows.train, true),
          write(result.rows.validation, false),
          write(result.rows.test, false)}},
        {"classes",
         {nlohmann::json::array(),
          result.rows.validation.targets.classes,
          result.rows.test.targets.classes}}}
        .dump();
  }));
  result.head = {
      model::HeadSpec::Kind::kClassifier, answer.at("labels"), model::ProblemType::kSingleLabel};
  result.label_lengths = answer.at("lengths").get<std::vector<double>>();
  const auto file_of = [&](size_t set) { return answer.at("paths").at(set).get<std::string>(); };
  if (!file_of(0).empty()) {
    const data::Packing packing = packing_of(config.data, model);
    result.datasets.train = std::make_shared<data::SequenceView>(
        data::TokenDataset::open(file_of(0)),
        sequence_length,
        config.data.packing == "auto" ? packing_of_prompts(model) : packing,
        data::LongDocuments::kTruncate);
  }
  const auto open = [&](size_t set) -> std::shared_ptr<const data::SequenceView> {
    if (file_of(set).empty()) {
      return nullptr;
    }
    const size_t labels = result.head.labels.size();
    return std::make_shared<data::SequenceView>(
        data::TokenDataset::open(file_of(set)),
        sequence_length,
        data::AnswerRows{
            .roles = roles_of(answer.at("classes").at(set).get<std::vector<int64_t>>(), labels),
            .at_once = static_cast<int64_t>(labels)});
  };
  result.datasets.validation = open(1);
  result.datasets.test = open(2);
  return result;
}

std::vector<int64_t> classes_of_candidates(const data::SequenceView& rows) {
  const std::vector<data::RowRole>& roles = rows.answers().roles;
  const auto labels = static_cast<size_t>(rows.rows_at_once());
  std::vector<int64_t> classes(roles.size() / labels, data::kNoClass);
  for (size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] == data::RowRole::kChosen) {
      classes[i / labels] = static_cast<int64_t>(i % labels);
    }
  }
  return classes;
}

Classified classify_by_likelihood(
    const RowScorer& scorer,
    const data::SequenceView& rows,
    const std::vector<double>& lengths,
    int64_t batch_size,
    parallel::Axes& axes,
    c10::Device device,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  const auto labels = static_cast<int64_t>(lengths.size());
  const at::Tensor divisors = at::tensor(lengths, at::kDouble);
  const ClassScorer scores = [&](std::span<const nn::ForwardInputs> batches) {
    std::vector<at::Tensor> logits;
    for (const at::Tensor& sums : scorer(batches)) {
      logits.push_back(sums.to(at::kDouble).view({-1, labels}).div(divisors).to(at::kFloat));
    }
    return logits;
  };
  return classify(
      scores, rows, labels, std::max<int64_t>(1, batch_size / labels), axes, device, progress);
}

}  // namespace lockstep::train
