// Rows of a text, or of two, and a label each: what a classifier is trained and judged on.
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

namespace lockstep::data {

struct LabelledRow {
  std::string text, pair;
  std::optional<std::string> label;  // trimmed; nothing: the row has none
  size_t file = 0;                   // of LabelledRows::files
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

/// The labels that occur, in the order of their numbers: as integers where all are, else by code
/// point. Error (kData): a row without a label, fewer than two labels.
std::vector<std::string> find_labels(const LabelledRows& rows, std::string_view key);

/// What a row without a class has.
inline constexpr int64_t kNoClass = -100;

enum class MissingLabels {
  kError,
  kNoClass,  // kNoClass, and so is the label -1 (of test sets whose labels are not told)
};
/// The number of each row's label. Labels that are LABEL_0, LABEL_1, ... stand for 0, 1, ... too.
/// Error (kData) that lists the first rows without a label, or with one that `labels` does not
/// hold.
std::vector<int64_t> classes_of(
    const LabelledRows& rows,
    const std::vector<std::string>& labels,
    std::string_view key,
    MissingLabels missing = MissingLabels::kError);

/// The ids of each row, at most `limit` of them: a text with the tokenizer's begin, then its pair
/// with it; cut at the end, of a pair the longer text first. A row without any is one `pad`.
/// Encodes on every core.
std::vector<std::vector<int32_t>> encode_rows(
    const LabelledRows& rows, const Encoder& encoder, int64_t limit, int32_t pad);

/// The parts of two texts of so many tokens that fit in `limit`, as Hugging Face's tokenizers cut
/// pairs ("longest_first").
struct PairLengths {
  int64_t first = 0, second = 0;
};
PairLengths cut_pair(PairLengths lengths, int64_t limit);

/// Writes rows as a token file of `folder`, named by a hash of them, unless it is there whole.
std::filesystem::path write_rows(
    const std::vector<std::vector<int32_t>>& rows,
    const std::filesystem::path& folder,
    const std::string& tokenizer,
    int64_t vocabulary,
    int32_t pad);

}  // namespace lockstep::data
