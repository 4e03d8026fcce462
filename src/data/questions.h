// Question-answer rows of forget and retain sets, as in TOFU (Maini et al., 2024), with
// configurable field names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/encoder.h"
#include "data/options.h"
#include "data/preferences.h"

namespace lockstep::data {

struct QuestionKeys {
  std::string question = "question", answer = "answer";
  std::string alternate;    // another answer to the same question; empty: not read
  std::string remedy = {};  // hint for a missing field; empty for the default hint
};

struct Question {
  std::string question;
  std::vector<std::string> answers;  // one answer, or those of a list
  bool is_list = false;              // the field was a list
  std::string alternate;
  size_t file = 0;
  int64_t line = 0;
};

struct Questions {
  std::vector<std::filesystem::path> files;
  std::vector<Question> rows;
};

/// Reads JSON lines, CSV and TSV. `key` names the configuration key of the words
/// ("unlearning.forget"). Throws Error (data, config) with file and line: a missing field, with
/// the nearest name; a value that is not a string; no rows.
Questions read_questions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const QuestionKeys& keys);

/// Reads texts with optional prefixes as rows of one answer. A record without the field
/// `prefix_key` has no prefix. Errors as above.
Questions read_completions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& prefix_key,
    const std::string& text_key);

/// Reads the strings of a field, in order. Errors as above.
std::vector<std::string> read_texts(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& text_key);

/// Reads the lines of a plain text file, trimmed, without blank ones. Throws Error (data) if there
/// is none.
std::vector<std::string> read_refusals(const std::filesystem::path& path);

/// Template that joins a question and its answer.
struct QuestionTemplate {
  enum class Form {
    kTags,    // enclosed by the four strings below
    kLlama3,  // Llama 3's chat template, with `system` and `date`
    kQwen,    // Qwen 2.5's chat template, with `system`
  };
  Form form = Form::kTags;
  std::string user_start = "Question: ", user_end = "\n", answer_start = "Answer: ";
  std::string system = "You are a helpful assistant.", date = "10 Apr 2025";
  /// A tokenizer may join the end of the prompt with the start of the answer. By default the prompt
  /// ends before the first joined token; with counts_prompt, as in open-unlearning, it has as many
  /// tokens as when encoded alone, so that joined tokens have no loss.
  bool counts_prompt = false;

  /// Return the text before the answer, and the whole text.
  std::string prompt(std::string_view question) const;
  std::string whole(std::string_view question, std::string_view answer) const;
};

/// Returns the form of the tokenizer's chat template. Throws Error (config) if it has none or an
/// unknown one.
QuestionTemplate::Form chat_form(const text::Tokenizer& tokenizer);

/// Encodes question and answer; at most `length` ids, truncated on the right before EOS, which is
/// appended if missing. Throws Error (data) if the tokenizer has no EOS.
EncodedAnswer encode_question(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length);
/// Encodes only the question. With counts_prompt, the ids are independent of the answer.
std::vector<int32_t> encode_prompt(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length);

/// Encodes a continuation of a prompt, joined by a separator if both are non-empty, to at most
/// `length` ids. Without a prompt, the first id counts as the prompt. No EOS is appended.
EncodedAnswer encode_completion(
    std::string_view prompt,
    std::string_view between,
    std::string_view text,
    const Encoder& encoder,
    int64_t length);

/// Splits texts into rows of at most `length` ids as open-unlearning does: joins them with blank
/// lines, encodes, and cuts. Each piece is decoded and encoded again, after BOS if the tokenizer
/// adds one. The first id of a row is its prompt. No EOS is appended.
std::vector<EncodedAnswer> encode_texts(
    const std::vector<std::string>& texts,
    const text::Tokenizer& tokenizer,
    const Encoder& encoder,
    int64_t length);

}  // namespace lockstep::data
