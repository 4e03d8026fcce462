// Finds the input files that the user named, and their formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/options.h"

namespace lockstep::data {

struct RowRange {
  int64_t begin = 0, end = 0;  // first row, and one past the last
  bool operator==(const RowRange&) const = default;
};

struct InputFile {
  std::filesystem::path path;
  Format format = Format::kText;      // never kAuto
  std::optional<RowRange> rows = {};  // rows to read; nullopt: all
};

/// Slice of rows, in the syntax of Hugging Face `datasets`: [10:100], [:80%], [-5%:].
struct RowPart {
  std::optional<int64_t> from, to;  // negative: from the end
  bool is_percent =
      false;  // applies to both bounds; they are rounded to the nearest row, ties to even
  /// Returns the range of the slice for a number of rows.
  RowRange of(int64_t rows) const;
};
/// Path or pattern, with an optional slice.
struct WordWithPart {
  std::string word;
  std::optional<RowPart> part;
};
WordWithPart split_part(const std::string& word, std::string_view key);

/// Returns the files that `words` name. Each word is a path, a glob (* ? [a-z] {a,b}) or a folder,
/// which is searched recursively without hidden files. Files are in the order of the words, and by
/// name within a glob or folder. Each file is returned once.
///
/// The format is `format` or, with kAuto, determined by the name: .txt .text .md .tokens .raw;
/// .json .jsonl .ndjson; .csv; .tsv; each optionally followed by .gz, .zst or .zstd. Files with
/// other names in a folder are skipped with a warning.
///
/// A word may end with a slice, such as [:80%] of the rows of all its files. The rows are then
/// counted (JSON, CSV, TSV, Parquet); plain text is an error. `key` is the configuration key of the
/// words ("data.train"). Throws Error (data) that names missing or unknown files and suggests
/// similar names.
std::vector<InputFile> find_inputs(
    std::span<const std::string> words, Format format, std::string_view key);

}  // namespace lockstep::data
