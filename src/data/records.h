// Records of files: a document of plain text or a part of one, a JSON object, or a row of a table.
// Records are split sequentially by these readers and then parsed in parallel (documents.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/options.h"

namespace lockstep::data {

/// Maximum size of a JSON object, row or field, and of its line.
inline constexpr size_t kLongestRecord = size_t{1} << 28;
/// Approximate size of the parts into which plain text is split.
inline constexpr size_t kTextPart = size_t{1} << 18;
/// A line of plain text that contains only this string ends a document, as in TinyStories.
inline constexpr const char* kDocumentSeparator = "<|endoftext|>";

struct Record {
  std::string text;              // as in the file, with \n line ends
  int64_t line = 1, column = 1;  // position of the first character; columns are in bytes
  bool begins = true,
       ends = true;  // first and last part of a document; plain text may be split into parts
};

/// Reads the records of one file in order. Not thread-safe.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual bool next(Record& record) = 0;
};

/// Returns a reader of the records [begin, end).
std::unique_ptr<RecordReader> within(
    std::unique_ptr<RecordReader> records, int64_t begin, int64_t end);

struct TextCutting {
  TextDocuments documents = TextDocuments::kFile;
  bool parts = true;         // long documents may be split (see find_cut)
  size_t section_bytes = 0;  // kFile: start a new document after about this number of bytes, at a
                             // blank line if one is near; 0: never
};

std::unique_ptr<RecordReader> open_text(const std::filesystem::path& path, TextCutting cutting);

/// Opens a file of JSON lines, or of one JSON array if it starts with [. Skips blank lines.
std::unique_ptr<RecordReader> open_json(const std::filesystem::path& path);

/// Reads the rows after the header, according to RFC 4180. Quoted fields may contain delimiters,
/// line ends and doubled quotes. Empty lines are skipped. An empty file has no columns and no rows.
class TableReader : public RecordReader {
 public:
  virtual const std::vector<std::string>& columns() const = 0;
};
std::unique_ptr<TableReader> open_table(const std::filesystem::path& path, char delimiter);
/// Splits a row into fields. Errors contain `path`, the record's line and the field.
std::vector<std::string> split_row(
    const Record& record, char delimiter, const std::filesystem::path& path);

/// Returns a CSV field in quotes if necessary.
std::string csv_field(std::string_view text);

}  // namespace lockstep::data
