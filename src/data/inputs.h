// Which files the users' words name, and how each is read.
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
  int64_t begin = 0, end = 0;  // the first of them, and the one behind the last
  bool operator==(const RowRange&) const = default;
};

struct InputFile {
  std::filesystem::path path;
  Format format = Format::kText;      // never kAuto
  std::optional<RowRange> rows = {};  // that are read of it; nothing: all
};

/// A part of some rows, as Hugging Face's `datasets` writes it: [10:100], [:80%], [-5%:].
struct RowPart {
  std::optional<int64_t> from, to;  // negative: from the end
  bool is_percent = false;          // both; rounded to the closest row, halves to the even one
  /// Of so many rows.
  RowRange of(int64_t rows) const;
};
/// A word and the part that it ends with, if any. Error (kConfig): more than 100 percent.
struct WordWithPart {
  std::string word;
  std::optional<RowPart> part;
};
WordWithPart split_part(const std::string& word, std::string_view key);

/// The files of a list of paths, globs (* ? [a-z] {a,b}) and folders: words in their order, a
/// glob's and a folder's (searched whole, hidden files left out) files by name, each file once. The
/// format is `format`, or with kAuto the one that the name tells: .txt .text .md .tokens .raw;
/// .json .jsonl .ndjson; .csv; .tsv; and each with .gz, .zst or .zstd after it. In a folder files
/// of other names are passed over. Errors of kind kData name what is missing or unknown, and what
/// stands near it. A word may end with a part: [:80%] of the rows of all its files together, which
/// are counted (JSON, CSV, TSV, Parquet; of plain text it is an Error). `key` says where the words
/// come from ("data.train").
std::vector<InputFile> find_inputs(
    std::span<const std::string> words, Format format, std::string_view key);

}  // namespace lockstep::data
