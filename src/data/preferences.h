// Answers that people prefer to others: what a model is tuned to. By the names of Hugging Face's
// TRL: rows of prompt, chosen and rejected, or of prompt, completion and label.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat.h"
#include "data/encoder.h"
#include "data/options.h"
#include "data/sequences.h"

namespace lockstep::data {

/// How answers are judged: two to one prompt, or one by one.
enum class Judged { kInPairs, kSingly };

struct PreferenceRow {
  std::string prompt;
  std::string answer;    // the chosen one
  std::string rejected;  // of pairs
  bool is_good = true;   // of single answers
  bool is_chat = false;  // written by a chat template, with its own begin and end of text
  size_t file = 0;       // of Preferences::files
  int64_t line = 0;
  std::optional<double> margin = {};  // of pairs: the least difference of their rewards
};

/// The rows of some files, in their order.
struct Preferences {
  std::vector<std::filesystem::path> files;
  std::vector<PreferenceRow> rows;

  /// "pairs.jsonl, line 7"
  std::string place(const PreferenceRow& row) const;
};

/// Gives the template that rows of messages are written by; Error (kConfig) where there is none.
using ChatTemplateSource = std::function<std::shared_ptr<const ChatTemplate>()>;

/// Reads JSON lines, Parquet, CSV and TSV. A pair without a prompt has the beginning that both
/// answers share as its prompt. Prompts and answers may be lists of messages (role, content), which
/// `chats` writes: the prompt is the text that asks for the answer, and an answer what the template
/// adds to it, as TRL's apply_chat_template has it. Of kSingly pairs are two rows each: all chosen
/// ones of a thousand pairs, then the rejected ones, as TRL takes them apart. `key` says where the
/// words come from ("data.train"). Error (kData, kConfig) with file and line: a missing field, with
/// the nearest name; an answer that is empty; two that are the same; a label that is none; messages
/// beside texts; no rows.
Preferences read_preferences(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    Judged judged,
    const ChatTemplateSource& chats = nullptr);

/// Which end of a row that is too long is kept; kNeither: the row is dropped.
enum class TruncationSide { kStart, kEnd, kNeither };

struct AnswerLimits {
  int64_t length = 0;                  // of a row: prompt and answer
  std::optional<int64_t> prompt = {};  // of a prompt, whose end is kept
  TruncationSide kept = TruncationSide::kStart;
};

struct EncodedAnswer {
  std::vector<int32_t> prompt, answer;  // the answer ends with the end of text
};
/// An answer as a row of at most so many tokens.
EncodedAnswer cut_answer(EncodedAnswer answer, const AnswerLimits& limits);

struct EncodedPreferences {
  /// As many as rows, or of pairs two each: the chosen one, then the rejected one. Not cut.
  std::vector<EncodedAnswer> answers;
  std::vector<RowRole> roles;  // of answers
  std::vector<double> margins;  // of answers, if any row has one; empty: all are 0
  int64_t dropped = 0;         // rows whose prompt left no room for an answer, or that are too long
  int64_t cut = 0;             // answers that are longer than the limit
};
/// Encodes on every core, a prompt together with its answer, after the tokenizer's begin; the
/// prompt is what both begin with. Error (kData): the tokenizer has no end of text; nothing is
/// left.
EncodedPreferences encode_preferences(
    const Preferences& rows, const Encoder& encoder, const AnswerLimits& limits, Judged judged);

/// To each prompt another one's answer: that of the row before, of the first of each `block` rows
/// that of its last, as TRL estimates KTO's KL. A row that is left alone at the end belongs to the
/// block before it. Error (kData): there is one row alone.
std::vector<EncodedAnswer> mismatched(const std::vector<EncodedAnswer>& answers, int64_t block);

/// Writes answers, cut, as a token file of `folder` with their prompts, named by a hash of them,
/// unless it is there whole.
std::filesystem::path write_answers(
    const std::vector<EncodedAnswer>& answers,
    const AnswerLimits& limits,
    const std::filesystem::path& folder,
    const Encoder& encoder,
    int64_t vocabulary,
    int32_t pad);

}  // namespace lockstep::data
