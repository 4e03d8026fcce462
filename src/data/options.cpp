// Parses data options.
#include "data/options.h"

#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"

namespace lockstep::data {
namespace {

template <class Value>
using Words = std::vector<std::pair<std::string, Value>>;

template <class Value>
Value parse_word(std::string_view key, std::string_view word, const Words<Value>& words) {
  std::vector<std::string> names;
  for (const auto& [name, value] : words) {
    if (name == word) {
      return value;
    }
    names.push_back(name);
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format(
          "{}=\"{}\" is not one of {}.{}",
          key,
          word,
          fmt::join(names, ", "),
          did_you_mean(word, names)));
}

void check_fraction(double value, std::string_view key, std::vector<std::string>& problems) {
  if (!(value >= 0 && value < 1)) {
    problems.push_back(
        fmt::format("{}={} is not a fraction: must be at least 0 and less than 1", key, value));
  }
}

}  // namespace

Format parse_format(std::string_view word) {
  return parse_word<Format>(
      "data.format",
      word,
      {{"auto", Format::kAuto},
       {"text", Format::kText},
       {"json", Format::kJson},
       {"jsonl", Format::kJson},
       {"csv", Format::kCsv},
       {"tsv", Format::kTsv}});
}

Prompt parse_prompt(std::string_view word) {
  return parse_word<Prompt>(
      "data.prompt",
      word,
      {{"none", Prompt::kNone},
       {"alpaca", Prompt::kAlpaca},
       {"pairs", Prompt::kPairs},
       {"chat", Prompt::kChat}});
}

ChatLoss parse_chat_loss(std::string_view word) {
  return parse_word<ChatLoss>(
      "data.chat_loss",
      word,
      {{"assistant", ChatLoss::kAssistant}, {"last", ChatLoss::kLast}, {"all", ChatLoss::kAll}});
}

TextDocuments parse_text_documents(std::string_view word) {
  return parse_word<TextDocuments>(
      "data.text_documents",
      word,
      {{"file", TextDocuments::kFile},
       {"line", TextDocuments::kLine},
       {"paragraph", TextDocuments::kParagraph}});
}

InvalidUtf8 parse_invalid_utf8(std::string_view word) {
  return parse_word<InvalidUtf8>(
      "data.invalid_utf8",
      word,
      {{"error", InvalidUtf8::kError}, {"replace", InvalidUtf8::kReplace}});
}

LongDocuments parse_long_documents(std::string_view word) {
  return parse_word<LongDocuments>(
      "data.long_documents",
      word,
      {{"split", LongDocuments::kSplit}, {"truncate", LongDocuments::kTruncate}});
}

std::string_view name_of(Prompt prompt) {
  return prompt == Prompt::kNone     ? "none"
         : prompt == Prompt::kAlpaca ? "alpaca"
         : prompt == Prompt::kPairs  ? "pairs"
                                     : "chat";
}

std::string_view name_of(Packing packing) {
  switch (packing) {
    case Packing::kConcatenated:
      return "concatenate";
    case Packing::kDocuments:
      return "documents";
    case Packing::kPerDocument:
      return "none";
    case Packing::kPairs:
      return "pairs";
  }
  return "?";
}

std::string_view name_of(Format format) {
  switch (format) {
    case Format::kAuto:
      return "auto";
    case Format::kText:
      return "text";
    case Format::kJson:
      return "json";
    case Format::kCsv:
      return "csv";
    case Format::kTsv:
      return "tsv";
  }
  return "?";
}

std::vector<std::string> problems_of(const DataOptions& options) {
  std::vector<std::string> problems;
  check_fraction(options.validation_fraction, "data.validation_fraction", problems);
  check_fraction(options.test_fraction, "data.test_fraction", problems);
  const double held_out = (options.validation.empty() ? options.validation_fraction : 0) +
                          (options.test.empty() ? options.test_fraction : 0);
  if (held_out >= 1) {
    problems.push_back(fmt::format(
        "data.validation_fraction={} and data.test_fraction={} leave no training data",
        options.validation_fraction,
        options.test_fraction));
  }
  if (held_out > 0 && options.train.empty()) {
    problems.emplace_back(
        "data.validation_fraction and data.test_fraction are fractions of data.train, which is "
        "empty");
  }
  if (options.prompt == Prompt::kNone && options.text_field.empty()) {
    problems.emplace_back("data.text_field is empty: set it to the field that contains the text");
  }
  if ((options.prompt == Prompt::kAlpaca || options.prompt == Prompt::kPairs) &&
      (options.instruction_field.empty() || options.output_field.empty())) {
    problems.push_back(fmt::format(
        "data.prompt={} requires data.instruction_field and data.output_field",
        name_of(options.prompt)));
  }
  if (options.cache_dir.empty()) {
    problems.emplace_back("data.cache_dir is empty: set it to a folder for the tokenized data");
  }
  if (options.threads < 0) {
    problems.push_back(
        fmt::format("{} threads: must be 0 (one per core) or more", options.threads));
  }
  return problems;
}

}  // namespace lockstep::data
