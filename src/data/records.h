// Records of files: a document of plain text or a part of one, a JSON object, a row of a table.
// Records are split here sequentially and parsed elsewhere in parallel (documents.h).
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
/// Approximate size of parts of plain text.
inline constexpr size_t kTextPart = size_t{1} << 18;
/// A line of plain text with only this string ends a document (the format of TinyStories).
inline constexpr const char* kDocumentSeparator = "<|endoftext|>";

struct Record {
  std::string text;              // as in the file, with \n line ends
  int64_t line = 1, column = 1;  // of its first character; columns count bytes
  bool begins = true,
       ends = true;  // first and last part of a document; plain text may come in several parts
};

/// Records of one file in order. Used by one thread.
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
  bool parts = true;         // long documents may be split into parts (see find_cut)
  size_t section_bytes = 0;  // kFile: start a new document after about this number of bytes, at a
                             // blank line if one is near; 0: never
};

std::unique_ptr<RecordReader> open_text(const std::filesystem::path& path, TextCutting cutting);

/// Opens JSON lines, skipping blank ones, or an array if the file starts with [.
std::unique_ptr<RecordReader> open_json(const std::filesystem::path& path);

/// Rows after the header according to RFC 4180: quoted fields may contain delimiters, line ends and
/// doubled quotes; empty lines are skipped. An empty file has no columns and no rows.
class TableReader : public RecordReader {
 public:
  virtual const std::vector<std::string>& columns() const = 0;
};
std::unique_ptr<TableReader> open_table(const std::filesystem::path& path, char delimiter);
/// Splits a row into fields. Errors name `path`, the record's line and the field.
std::vector<std::string> split_row(
    const Record& record, char delimiter, const std::filesystem::path& path);

/// Returns a CSV field, quoted if necessary.
std::string csv_field(std::string_view text);

}  // namespace lockstep::data
