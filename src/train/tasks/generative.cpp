// Implements generative classification: prompts, labels and data.
#include "train/tasks/generative.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "config/core/cache_folder.h"
#include "data/encoder.h"
#include "data/token_dataset.h"
#include "train/machine/rank_context.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kLabel = "{label}";

[[noreturn]] void refuse_template(const std::string& text, const std::string& why) {
  throw Error(
      ErrorKind::kConfig,
      fmt::format("generative.prompt_template \"{}\": {}", text, why),
      "use a template such as {text}\\nLabel: {label}, with {pair} for data.text_pair_field");
}

/// Returns the largest length up to `bytes` that does not split a UTF-8 character of `text`.
size_t whole_characters(std::string_view text, size_t bytes) {
  bytes = std::min(bytes, text.size());
  while (bytes > 0 && bytes < text.size() &&
         (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) {
    --bytes;
  }
  return bytes;
}

/// Returns the training rows of a set: prompts followed by labels.
std::vector<data::RowIds> learned_rows(
    const LabelledSet& set, const PromptForm& form, bool learns_prompts) {
  std::vector<data::RowIds> rows;
  for (size_t i = 0; i < set.rows.rows.size(); ++i) {
    data::RowIds& row = rows.emplace_back();
    row.ids = form.prompt(set.rows.rows[i]);
    row.first_segment = learns_prompts ? 0 : std::ssize(row.ids);
    const auto& label = form.label(static_cast<size_t>(set.targets.classes[i]));
    row.ids.insert(row.ids.end(), label.begin(), label.end());
  }
  return rows;
}

/// Returns the rows of a set as prompts without labels.
std::vector<data::RowIds> prompts(const LabelledSet& set, const PromptForm& form) {
  std::vector<data::RowIds> rows;
  for (const data::LabelledRow& row : set.rows.rows) {
    rows.push_back({form.prompt(row)});
  }
  return rows;
}

/// Throws if a label is a prefix of another, because greedy decoding could then not choose between
/// them.
void check_ends(
    const std::vector<std::vector<int32_t>>& ids, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t k = 0; k < ids.size(); ++k) {
      const auto& shorter = ids[i];
      if (i != k && shorter.size() < ids[k].size() &&
          std::equal(shorter.begin(), shorter.end(), ids[k].begin())) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format(
                "generative.decode=greedy: \"{}\" starts with \"{}\", and the tokenizer has no "
                "end-of-text token to distinguish them",
                texts[k],
                texts[i]),
            "use generative.decode=likelihood, or other generative.verbalizers");
      }
    }
  }
}

void check_first_tokens(
    const std::vector<std::vector<int32_t>>& ids, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t k = i + 1; k < ids.size(); ++k) {
      if (ids[i].front() == ids[k].front()) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format(
                "generative.decode=first_token: \"{}\" and \"{}\" start with the same token",
                texts[i],
                texts[k]),
            "use generative.decode=likelihood, or other generative.verbalizers");
      }
    }
  }
}

data::Chat message_of_user(std::string text) {
  data::Chat chat;
  chat.messages.push_back({{"role", "user"}, {"content", std::move(text)}});
  return chat;
}

void check_decoder(const model::ModelConfig& model) {
  if (model.bidirectional || model.is_encoder_decoder() || model.head.classifies()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.type=generative_classification requires a decoder-only language model, but {} is "
            "{}",
            model::family_name(model.family),
            model.head.classifies() ? "a classifier here"
            : model.bidirectional   ? "an encoder"
                                    : "an encoder-decoder model"),
        "use task.type=sequence_classification, or another model");
  }
}

}  // namespace

PromptForm::PromptForm(
    const config::GenerativeSection& section,
    const std::vector<std::string>& labels,
    const data::Encoder& encoder,
    int64_t limit,
    std::shared_ptr<const data::ChatTemplate> chats)
    : encoder_(encoder),
      chats_(std::move(chats)) {
  if (section.chat && chats_ == nullptr) {
    throw Error(
        ErrorKind::kConfig,
        "generative.chat: the tokenizer has no chat template",
        "set data.chat_template=FILE, or remove generative.chat");
  }
  const std::string& text = section.prompt_template;
  if (!text.ends_with(kLabel) || text.find(kLabel) + kLabel.size() != text.size()) {
    refuse_template(text, "{label} must be at the end and appear once");
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
      refuse_template(text, fmt::format("unknown field {{{}}}", name));
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
            "generative.verbalizers: {} texts for {} labels: {}",
            texts.size(),
            labels.size(),
            fmt::join(labels, ", ")),
        "give one per label, in this order");
  }
  size_t longest = 0;
  // In chats, the template's end-of-turn marker is used instead.
  const bool ends_texts = chats_ == nullptr || chats_->end_of_turn().empty();
  std::set<std::vector<int32_t>> seen;
  for (const std::string& each : texts) {
    std::vector<int32_t> ids = chats_ != nullptr ? answer(each) : encoder.encode(spaces + each);
    if (ids.empty() || !seen.insert(ids).second) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the label \"{}\" {}",
              each,
              ids.empty() ? "has no tokens" : "has the same tokens as another label"),
          "give each label a distinct text with generative.verbalizers");
    }
    if (encoder.end && ends_texts) {
      ids.push_back(*encoder.end);
    }
    longest = std::max(longest, ids.size());
    lengths_.push_back(
        section.normalize == "token"  ? static_cast<double>(ids.size())
        : section.normalize == "byte" ? static_cast<double>(each.size())
                                      : 1.0);
    labels_.push_back(std::move(ids));
  }
  if (section.decode == "greedy") {
    check_ends(labels_, texts);
  } else if (section.decode == "first_token") {
    check_first_tokens(labels_, texts);
  }
  most_ = limit - static_cast<int64_t>(longest);
  if (std::ssize(encode("", "")) >= most_) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "a row of {} tokens has no room for a text: the template has {}, the longest label {}",
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
  std::vector<int32_t> ids =
      encoder_.encode(chats_ != nullptr ? chats_->prompt(message_of_user(whole)) : whole);
  if (encoder_.begin && chats_ == nullptr) {
    ids.insert(ids.begin(), *encoder_.begin);
  }
  if (ids.empty()) {
    ids.push_back(encoder_.end.value_or(0));  // the first token needs a preceding token
  }
  return ids;
}

std::vector<int32_t> PromptForm::answer(const std::string& label) const {
  data::Chat chat = message_of_user("a text");
  const std::string asked = chats_->prompt(chat), end = chats_->end_of_turn();
  chat.messages.push_back({{"role", "assistant"}, {"content", label}});
  const std::string whole = chats_->whole(chat);
  const size_t at = whole.find(label, asked.size());
  if (!whole.starts_with(asked) || at == std::string::npos) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "generative.chat: the chat template does not place the answer \"{}\" after the prompt",
            label),
        "set another template with data.chat_template=FILE, or remove generative.chat");
  }
  const size_t stop = end.empty() ? std::string::npos : whole.find(end, at + label.size());
  const size_t last = stop == std::string::npos ? at + label.size() : stop + end.size();
  return encoder_.encode(std::string_view(whole).substr(asked.size(), last - asked.size()));
}

std::vector<int32_t> PromptForm::prompt(const data::LabelledRow& row) const {
  std::vector<int32_t> ids = encode(row.text, row.pair);
  if (std::ssize(ids) <= most_) {
    return ids;
  }
  // Binary search for the longest text that fits. The pair is kept whole if possible.
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
    const PromptForm form(
        config.generative,
        labels,
        encoder,
        sequence_length,
        config.generative.chat ? data::ChatTemplate::of(*tokenizer) : nullptr);
    const int32_t pad = encoder.pad ? *encoder.pad : encoder.end.value_or(0);
    const auto write = [&](const LabelledSet& set, bool is_learned) -> std::string {
      return set.targets.classes.empty()
                 ? ""
                 : data::write_rows(
                       is_learned ? learned_rows(set, form, config.generative.prompt_loss)
                                  : prompts(set, form),
                       config::cache_folder(config.data.cache_dir),
                       encoder.fingerprint,
                       std::max(encoder.vocabulary_size, model.vocab_size),
                       pad)
                       .string();
    };
    auto trained = nlohmann::json::array();
    for (const LabelledSet& set : result.rows.train_by_source()) {
      trained.push_back(write(set, true));
    }
    const auto asked = [&](const LabelledSet& set) {
      return nlohmann::json{{"path", write(set, false)}, {"classes", set.targets.classes}};
    };
    std::vector<std::vector<int32_t>> scored = form.labels();
    if (config.generative.decode == "first_token") {
      std::ranges::for_each(scored, [](auto& ids) { ids.resize(1); });
    }
    const bool has_prior = config.generative.normalize == "prior";
    return nlohmann::json{
        {"labels", labels},
        {"ids", scored},
        {"prior", has_prior ? form.empty_prompt() : std::vector<int32_t>()},
        {"lengths", form.lengths()},
        {"train", trained},
        {"validation", asked(result.rows.validation)},
        {"test", asked(result.rows.test)}}
        .dump();
  }));
  result.head = {
      model::HeadSpec::Kind::kClassifier, answer.at("labels"), model::ProblemType::kSingleLabel};
  result.written = {
      answer.at("ids").get<std::vector<std::vector<int64_t>>>(),
      answer.at("lengths").get<std::vector<double>>(),
      config.generative.decode == "greedy",
      answer.at("prior").get<std::vector<int64_t>>()};
  std::vector<std::shared_ptr<const data::SequenceView>> trained;
  for (const std::string path : answer.at("train")) {
    trained.push_back(
        path.empty() ? nullptr
                     : std::make_shared<data::SequenceView>(
                           data::TokenDataset::open(path),
                           sequence_length,
                           config.data.packing == "auto" ? packing_of_prompts(model)
                                                         : packing_of(config.data, model),
                           data::LongDocuments::kTruncate));
  }
  const auto open = [&](const nlohmann::json& set) -> std::shared_ptr<const data::SequenceView> {
    const std::string path = set.at("path");
    return path.empty() ? nullptr
                        : std::make_shared<data::SequenceView>(
                              data::TokenDataset::open(path),
                              sequence_length,
                              set.at("classes").get<std::vector<int64_t>>());
  };
  result.datasets = {
      mixed_rows(sources_of(config.data), trained),
      open(answer.at("validation")),
      open(answer.at("test"))};
  if (communicator.rank() == 0) {
    tell_mixture(result.datasets, config.data);
  }
  return result;
}

Classified classify_written(
    const PromptReader& reader,
    const WrittenLabels& labels,
    const data::SequenceView& rows,
    int64_t batch_size,
    parallel::ParallelGroups& axes,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  const int64_t count = std::ssize(labels.ids);
  Classified found = classify(
      [&](std::span<const nn::ForwardInputs> batches) {
        return label_logits(reader, labels, batches);
      },
      rows,
      count,
      reader.cacheable != nullptr ? batch_size : std::max<int64_t>(1, batch_size / count),
      axes,
      reader.device,
      progress);
  if (!labels.prior.empty()) {
    const at::NoGradGuard no_gradient;
    found.logits.sub_(label_logits_of(reader, labels, labels.prior));
  }
  return found;
}

}  // namespace lockstep::train
