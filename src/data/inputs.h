// Input files named by the user, and their formats.
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
  int64_t begin = 0, end = 0;  // the first row, and one past the last
  bool operator==(const RowRange&) const = default;
};

struct InputFile {
  std::filesystem::path path;
  Format format = Format::kText;      // never kAuto
  std::optional<RowRange> rows = {};  // rows to read; nullopt: all
};

/// A slice of rows in the syntax of Hugging Face `datasets`: [10:100], [:80%], [-5%:].
struct RowPart {
  std::optional<int64_t> from, to;  // negative: from the end
  bool is_percent =
      false;  // applies to both bounds; they are rounded to the nearest row, ties to even
  /// Resolves the slice for a number of rows.
  RowRange of(int64_t rows) const;
};
/// Path or pattern with an optional slice. Throws Error (config) for more than 100 percent.
struct WordWithPart {
  std::string word;
  std::optional<RowPart> part;
};
WordWithPart split_part(const std::string& word, std::string_view key);

/// Resolves a list of paths, globs (* ? [a-z] {a,b}) and folders: words in order, files of a glob
/// or of a folder (searched recursively, without hidden files) by name, each file once. The format
/// is `format` or, with kAuto, determined by the name: .txt .text .md .tokens .raw; .json .jsonl
/// .ndjson; .csv; .tsv; each with optional .gz, .zst or .zstd. Files with other names in a folder
/// are skipped with a warning. Throws Error (data) naming missing or unknown files, with similar
/// names. A word may end with a slice: [:80%] of the rows of all its files, which are counted
/// (JSON, CSV, TSV, Parquet; an error for plain text). `key` names the configuration key of the
/// words ("data.train").
std::vector<InputFile> find_inputs(
    std::span<const std::string> words, Format format, std::string_view key);

}  // namespace lockstep::data
