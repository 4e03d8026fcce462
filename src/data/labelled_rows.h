// Rows of one or two texts with labels, for classifiers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/encoder.h"
#include "data/options.h"
#include "data/raw_label.h"

namespace lockstep::data {

struct LabelledRow {
  std::string text, pair;
  std::optional<RawLabel> label;  // nullopt: the row has none
  size_t file = 0;                // of LabelledRows::files
  int64_t line = 0;
};

/// The rows of some files, in order. A row with an empty text counts.
struct LabelledRows {
  std::vector<std::filesystem::path> files;
  std::vector<LabelledRow> rows;

  /// "dev.csv, line 7"
  std::string place(const LabelledRow& row) const;
};

/// Reads JSON lines, CSV and TSV. `key` names the configuration key of the words ("data.train").
/// Throws Error (kData, kConfig) for a missing file or field, with the nearest name; a file that is
/// not a table; no rows.
LabelledRows read_labelled(
    std::span<const std::string> words, const DataOptions& options, std::string_view key);

struct RowIds {
  std::vector<int32_t> ids;
  int64_t first_segment = 0;  // tokens of the first text, if a second one follows
  bool operator==(const RowIds&) const = default;
};

/// Returns the ids of each row, at most `limit`: BOS + text (+ BOS + pair), or the tokenizer's
/// template; truncated at the end, for pairs the longer text first. An empty row is one `pad`.
/// Encodes on every core. Throws Error (kConfig) if the template alone exceeds `limit`.
std::vector<RowIds> encode_rows(
    const LabelledRows& rows, const Encoder& encoder, int64_t limit, int32_t pad);

/// Lengths of two texts after truncation to `limit` as Hugging Face's tokenizers do it
/// ("longest_first").
struct PairLengths {
  int64_t first = 0, second = 0;
};
PairLengths cut_pair(PairLengths lengths, int64_t limit);

/// Writes rows as a token file of `folder`, named by a hash of them, unless it is there whole.
std::filesystem::path write_rows(
    const std::vector<RowIds>& rows,
    const std::filesystem::path& folder,
    const std::string& tokenizer,
    int64_t vocabulary,
    int32_t pad);

}  // namespace lockstep::data
