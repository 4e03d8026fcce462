// Rows of a text, or of two, and their labels: what a classifier is trained and judged on.
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
  std::optional<RawLabel> label;  // nothing: the row has none
  size_t file = 0;                // of LabelledRows::files
  int64_t line = 0;
};

/// The rows of some files, in their order. A row whose text is empty is one, too.
struct LabelledRows {
  std::vector<std::filesystem::path> files;
  std::vector<LabelledRow> rows;

  /// "dev.csv, line 7"
  std::string place(const LabelledRow& row) const;
};

/// Reads JSON lines, CSV and TSV. `key` says where the words come from ("data.train"). Error
/// (kData, kConfig): a missing file or field, with the nearest name; what is no table; no rows.
LabelledRows read_labelled(
    std::span<const std::string> words, const DataOptions& options, std::string_view key);

struct RowIds {
  std::vector<int32_t> ids;
  int64_t first_segment = 0;  // tokens of it, where a second one follows
  bool operator==(const RowIds&) const = default;
};

/// The ids of each row, at most `limit` of them: a text with the tokenizer's begin, then its pair
/// with it, or both as the encoder's template of rows has them; cut at the end, of a pair the
/// longer text first. A row without any is one `pad`. Encodes on every core. Error (kConfig): the
/// template alone has more tokens than `limit`.
std::vector<RowIds> encode_rows(
    const LabelledRows& rows, const Encoder& encoder, int64_t limit, int32_t pad);

/// The parts of two texts of so many tokens that fit in `limit`, as Hugging Face's tokenizers cut
/// pairs ("longest_first").
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
