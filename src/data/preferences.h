// Preference data with the field names of Hugging Face's TRL: prompt, chosen and rejected; or
// prompt, completion and label.
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

/// Kind of preference data: answers compared in pairs, or answers that are scored individually.
enum class Judged { kInPairs, kSingly };

struct PreferenceRow {
  std::string prompt;
  std::string answer;    // chosen answer, or the only one
  std::string rejected;  // for pairs
  bool is_good = true;   // for individually scored answers
  bool is_chat = false;  // rendered by a chat template, including BOS and EOS
  size_t file = 0;       // index into Preferences::files
  int64_t line = 0;
  std::optional<double> margin = {};  // for pairs: minimum difference of the rewards

  bool operator==(const PreferenceRow&) const = default;
};

/// Rows of one or more files, in order.
struct Preferences {
  std::vector<std::filesystem::path> files;
  std::vector<PreferenceRow> rows;

  /// Returns "pairs.jsonl, line 7".
  std::string place(const PreferenceRow& row) const;
};

/// Returns the template for rows of messages. Throws Error (config) if there is none.
using ChatTemplateSource = std::function<std::shared_ptr<const ChatTemplate>()>;

/// Reads JSON lines, Parquet, CSV and TSV. If a pair has no prompt, the common prefix of both
/// answers is used. Prompts and answers may be lists of messages (role, content), which `chats`
/// renders. The prompt then ends with the generation prompt, and an answer is the text that the
/// template adds to it, as in TRL's apply_chat_template. For kSingly, a pair becomes two rows. As
/// in TRL, all chosen answers of a thousand pairs come first, then their rejected ones.
///
/// `key` is the configuration key of the words ("data.train"). Throws Error (data, config) with
/// file and line for a missing field (with the nearest name), an empty answer, equal answers, an
/// invalid label, messages mixed with strings, or if there are no rows.
Preferences read_preferences(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    Judged judged,
    const ChatTemplateSource& chats = nullptr);

/// End of an overlong row that is kept. kNeither: the row is dropped.
enum class TruncationSide { kStart, kEnd, kNeither };

struct AnswerLimits {
  int64_t length = 0;  // maximum number of tokens in a row (prompt and answer)
  std::optional<int64_t> prompt =
      {};  // maximum tokens of a prompt, which is truncated at its start
  TruncationSide kept = TruncationSide::kStart;
};

struct EncodedAnswer {
  std::vector<int32_t> prompt, answer;  // the answer ends with EOS
};
/// Truncates an answer to the limits.
EncodedAnswer cut_answer(EncodedAnswer answer, const AnswerLimits& limits);

struct EncodedPreferences {
  /// One per row, or two per pair: first the chosen one, then the rejected one. Not truncated.
  std::vector<EncodedAnswer> answers;
  std::vector<RowRole> roles;  // one per answer
  /// Margin of each answer. Empty if no row has one.
  std::vector<double> margins;
  /// Number of dropped rows. These are too long, or their prompt leaves no room for an answer.
  int64_t dropped = 0;
  int64_t cut = 0;  // number of answers longer than the limit
};
/// Encodes the rows on all cores. Prompt and answer are encoded together, after BOS. The common
/// prefix of the encoded answers is the prompt. Throws Error (data) if the tokenizer has no EOS or
/// if all rows are dropped.
EncodedPreferences encode_preferences(
    const Preferences& rows, const Encoder& encoder, const AnswerLimits& limits, Judged judged);

/// Pairs each prompt with the answer of another row, as TRL does to estimate KTO's KL divergence.
/// This is the previous row, or for the first row of each `block` rows the last one. If the last
/// block would have a single row, this row belongs to the previous block. Throws Error (data) if
/// there is only one row.
std::vector<EncodedAnswer> mismatched(const std::vector<EncodedAnswer>& answers, int64_t block);

/// Writes the truncated answers with their prompts to a token file in `folder`, named by a hash of
/// its content. Keeps an existing file.
std::filesystem::path write_answers(
    const std::vector<EncodedAnswer>& answers,
    const AnswerLimits& limits,
    const std::filesystem::path& folder,
    const Encoder& encoder,
    int64_t vocabulary,
    int32_t pad);

}  // namespace lockstep::data
