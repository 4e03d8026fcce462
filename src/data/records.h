// Files as records: a document of plain text or a part of one, a JSON object, a row of a table.
// Records are cut here, one after another; what they say is read from them elsewhere, many at once
// (documents.h).
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

/// The longest JSON object, row or field, and the longest line that holds one.
inline constexpr size_t kLongestRecord = size_t{1} << 28;
/// Plain text is handed on in parts of about this many bytes.
inline constexpr size_t kTextPart = size_t{1} << 18;
/// A line of plain text that is this and nothing else ends a document (the form of TinyStories).
inline constexpr const char* kDocumentSeparator = "<|endoftext|>";

struct Record {
  std::string text;                 // as it stands in the file; line ends are \n
  int64_t line = 1, column = 1;     // of its first character; columns count bytes
  bool begins = true, ends = true;  // a document; plain text may come in parts
};

/// Records of one file from its start to its end. One thread.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual bool next(Record& record) = 0;
};

/// The records [begin, end) of a reader's.
std::unique_ptr<RecordReader> within(
    std::unique_ptr<RecordReader> records, int64_t begin, int64_t end);

struct TextCutting {
  TextDocuments documents = TextDocuments::kFile;
  bool parts = true;         // long documents may come in parts (see find_cut)
  size_t section_bytes = 0;  // kFile: a new document after about so many bytes, at a blank line if
                             // one is near; 0: never
};

std::unique_ptr<RecordReader> open_text(const std::filesystem::path& path, TextCutting cutting);

/// JSON lines, blank ones left out; or the elements of an array, where the file begins with [.
std::unique_ptr<RecordReader> open_json(const std::filesystem::path& path);

/// Rows after the header, as RFC 4180 has them: quoted fields may hold delimiters, line ends and
/// doubled quotes; empty lines are left out. An empty file has no columns and no rows.
class TableReader : public RecordReader {
 public:
  virtual const std::vector<std::string>& columns() const = 0;
};
std::unique_ptr<TableReader> open_table(const std::filesystem::path& path, char delimiter);
/// The fields of a row. An Error names `path`, the record's line and the field.
std::vector<std::string> split_row(
    const Record& record, char delimiter, const std::filesystem::path& path);

/// A field as a CSV file has it: quoted where it has to be.
std::string csv_field(std::string_view text);

}  // namespace lockstep::data
