// Questions and their answers: what a model is to forget, and what it is to keep. Rows are those of
// TOFU (Maini et al., 2024), by whatever names of fields.
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
  std::string alternate;    // another answer to the same question; empty: none is read
  std::string remedy = {};  // of a field that is missing; empty: how fields are named
};

struct Question {
  std::string question;
  std::vector<std::string> answers;  // one, or those of a list
  bool is_list = false;              // the field was a list
  std::string alternate;
  size_t file = 0;
  int64_t line = 0;
};

struct Questions {
  std::vector<std::filesystem::path> files;
  std::vector<Question> rows;
};

/// Reads JSON lines, CSV and TSV. `key` says where the words come from ("unlearning.forget").
/// Error (kData, kConfig) with file and line: a missing field, with the nearest name; what is no
/// text; no rows.
Questions read_questions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const QuestionKeys& keys);

/// Texts and what precedes them, as rows of one answer. A record without the field `prefix_key` has
/// nothing there. Errors likewise.
Questions read_completions(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& prefix_key,
    const std::string& text_key);

/// The texts of a field, in their order. Errors likewise.
std::vector<std::string> read_texts(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    const std::string& text_key);

/// The lines of a file of plain text, whatever its name, without white space around them; blank
/// ones are left out. Error (kData): there is none.
std::vector<std::string> read_refusals(const std::filesystem::path& path);

/// How a question and its answer are one text.
struct QuestionTemplate {
  enum class Form {
    kTags,    // the four texts below around them
    kLlama3,  // Llama 3's conversation, with `system` and `date`
    kQwen,    // Qwen 2.5's, with `system`
  };
  Form form = Form::kTags;
  std::string user_start = "Question: ", user_end = "\n", answer_start = "Answer: ";
  std::string system = "You are a helpful assistant.", date = "10 Apr 2025";
  /// A tokenizer may join the prompt's end and the answer's begin. The prompt is what stands before
  /// the first id that is not its own; or, as open-unlearning has it, as many ids as it has by
  /// itself, so that what is joined is not learned.
  bool counts_prompt = false;

  /// What stands before the answer, and all of it.
  std::string prompt(std::string_view question) const;
  std::string whole(std::string_view question, std::string_view answer) const;
};

/// The form of a tokenizer's chat_template, where it is one of those that are known. Error
/// (kConfig): it has none, or another one.
QuestionTemplate::Form chat_form(const text::Tokenizer& tokenizer);

/// The ids of both; at most `length`, cut on the right before the end of text, which is put behind
/// them where they do not end with it. Error (kData): the tokenizer has no end of text.
EncodedAnswer encode_question(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length);
/// The ids that ask a question alone: of a prompt that is counted, those it has by itself.
std::vector<int32_t> encode_prompt(
    std::string_view question,
    std::string_view answer,
    const QuestionTemplate& form,
    const Encoder& encoder,
    int64_t length);

/// A text that goes on a prompt, with what stands between two that are not empty: at most `length`
/// ids of it, the first of which is the prompt's if it has none. There is no end of text.
EncodedAnswer encode_completion(
    std::string_view prompt,
    std::string_view between,
    std::string_view text,
    const Encoder& encoder,
    int64_t length);

/// Texts as rows of at most `length` ids, as open-unlearning cuts them: joined by blank lines,
/// encoded, cut into pieces, and each piece decoded and encoded again by itself, after the
/// tokenizer's begin if it puts one. The first id is a row's prompt; there is no end of text.
std::vector<EncodedAnswer> encode_texts(
    const std::vector<std::string>& texts,
    const text::Tokenizer& tokenizer,
    const Encoder& encoder,
    int64_t length);

}  // namespace lockstep::data
