// Rows with labels for classifiers. A row has one or two texts.
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
  std::optional<RawLabel> label;  // nullopt if missing
  size_t file = 0;                // index into LabelledRows::files
  int64_t line = 0;
};

/// Rows of one or more files, in order. Rows with empty text are included.
struct LabelledRows {
  std::vector<std::filesystem::path> files;
  std::vector<LabelledRow> rows;

  /// Returns "dev.csv, line 7".
  std::string place(const LabelledRow& row) const;
};

/// Reads JSON lines, CSV and TSV. `key` is the configuration key of the words ("data.train").
/// Throws Error (data, config) if a file or field is missing (with the nearest name), if a file is
/// not a table, or if there are no rows.
LabelledRows read_labelled(
    std::span<const std::string> words, const DataOptions& options, std::string_view key);

struct RowIds {
  std::vector<int32_t> ids;
  int64_t first_segment = 0;  // tokens of the first text, if a second one follows
  bool operator==(const RowIds&) const = default;
};

/// Encodes the rows on all cores. The ids of a row are BOS + text (+ BOS + pair), or the
/// tokenizer's template filled with the texts, at most `limit` ids. Long texts are truncated at the
/// end; for pairs, tokens of the longer text are removed first. An empty row becomes one `pad`.
/// Throws Error (config) if the template alone exceeds `limit`.
std::vector<RowIds> encode_rows(
    const LabelledRows& rows, const Encoder& encoder, int64_t limit, int32_t pad);

/// Returns the lengths of two texts after truncation to `limit` with Hugging Face's strategy
/// "longest_first".
struct PairLengths {
  int64_t first = 0, second = 0;
};
PairLengths cut_pair(PairLengths lengths, int64_t limit);

/// Writes the rows to a token file in `folder`, named by a hash of the rows. Keeps an existing
/// complete file.
std::filesystem::path write_rows(
    const std::vector<RowIds>& rows,
    const std::filesystem::path& folder,
    const std::string& tokenizer,
    int64_t vocabulary,
    int32_t pad);

}  // namespace lockstep::data
