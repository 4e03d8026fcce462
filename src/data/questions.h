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
  std::string remedy = {};  // hint for a missing field; empty: the default hint
};

struct Question {
  std::string question;
  std::vector<std::string> answers;  // one answer, or those of a list field
  bool is_list = false;              // the answer field is a list
  std::string alternate;
  size_t file = 0;
  int64_t line = 0;
};

struct Questions {
  std::vector<std::filesystem::path> files;
  std::vector<Question> rows;
};

/// Reads JSON lines, CSV and TSV. `key` is the configuration key of the words
/// ("unlearning.forget"). Throws Error (data, config) with file and line if a field is missing
/// (with the nearest name) or not a string, or if there are no rows.
Questions read_questions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const QuestionKeys& keys);

/// Reads texts with optional prefixes. Each becomes a question with one answer. A record without
/// the field `prefix_key` has no prefix. Throws like read_questions().
Questions read_completions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& prefix_key,
    const std::string& text_key);

/// Reads the strings of a field, in order. Throws like read_questions().
std::vector<std::string> read_texts(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& text_key);

/// Reads the lines of a plain text file, without surrounding white space and blank lines. Throws
/// Error (data) if there are none.
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
  /// A tokenizer may merge the end of the prompt and the start of the answer into one token. By
  /// default, the prompt ends before this token. With counts_prompt, as in open-unlearning, the
  /// prompt has as many tokens as if it were encoded alone, so that the merged token has no loss.
  bool counts_prompt = false;

  /// Return the text before the answer, and the text with the answer.
  std::string prompt(std::string_view question) const;
  std::string whole(std::string_view question, std::string_view answer) const;
};

/// Returns the form that matches the tokenizer's chat template. Throws Error (config) if it has
/// none or an unknown one.
QuestionTemplate::Form chat_form(const text::Tokenizer& tokenizer);

/// Encodes question and answer to at most `length` ids. Long answers are truncated before EOS. EOS
/// is appended if missing. Throws Error (data) if the tokenizer has no EOS.
EncodedAnswer encode_question(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length);
/// Encodes the question. With counts_prompt, the ids do not depend on the answer.
std::vector<int32_t> encode_prompt(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length);

/// Encodes a prompt and its continuation to at most `length` ids. If both are non-empty, they are
/// joined by `between`. Without a prompt, the first id is treated as prompt. No EOS is appended.
EncodedAnswer encode_completion(
    std::string_view prompt,
    std::string_view between,
    std::string_view text,
    const Encoder& encoder,
    int64_t length);

/// Splits texts into rows of at most `length` ids, like open-unlearning: joins the texts with blank
/// lines, encodes them, and divides the ids. Each piece is decoded and encoded again, after BOS if
/// the tokenizer adds one. The first id of a row is its prompt. No EOS is appended.
std::vector<EncodedAnswer> encode_texts(
    const std::vector<std::string>& texts,
    const text::Tokenizer& tokenizer,
    const Encoder& encoder,
    int64_t length);

}  // namespace lockstep::data
