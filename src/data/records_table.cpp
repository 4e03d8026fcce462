// Splits CSV and TSV files into rows.
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "data/line_reader.h"
#include "data/records.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

/// Returns true if a quoted field is still open after `line`. `open` is true if one was open before
/// it. Only a quote at the start of a field opens a quoted field.
bool open_after(std::string_view line, char delimiter, bool open) {
  if (line.find('"') == std::string_view::npos) {
    return open;
  }
  bool at_start = true;
  for (size_t i = 0; i < line.size(); ++i) {
    if (open) {
      if (line[i] == '"') {
        if (i + 1 < line.size() && line[i + 1] == '"') {
          ++i;
        } else {
          open = false;
        }
      }
    } else if (line[i] == '"' && at_start) {
      open = true;
    }
    at_start = !open && line[i] == delimiter;
  }
  return open;
}

class DelimitedReader final : public TableReader {
 public:
  DelimitedReader(const fs::path& path, char delimiter)
      : path_(path),
        delimiter_(delimiter),
        lines_(open_bytes(path)) {
    Record header;
    if (take_row(header)) {
      columns_ = split_row(header, delimiter_, path_);
    }
  }

  const std::vector<std::string>& columns() const override { return columns_; }
  bool next(Record& record) override { return take_row(record); }

 private:
  bool take_line(std::string& line) {
    LineEnd end{};
    if (!lines_.next(line, end, kLongestRecord)) {
      return false;
    }
    if (end == LineEnd::kMore) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}, line {} is longer than {} MiB",
              path_.string(),
              lines_.number(),
              kLongestRecord >> 20),
          "if the file is not a table, set data.format");
    }
    return true;
  }

  bool take_row(Record& record) {
    do {
      if (!take_line(record.text)) {
        return false;
      }
    } while (record.text.empty());
    record.line = lines_.number();
    bool open = open_after(record.text, delimiter_, false);
    while (open) {
      if (record.text.size() > kLongestRecord || !take_line(line_)) {
        throw Error(
            ErrorKind::kData,
            fmt::format(
                "{}: a quoted field of the row that starts at line {} is not closed",
                path_.string(),
                record.line),
            "close it; a quote inside a quoted field is written twice, and a field that starts "
            "with a quote must be quoted");
      }
      record.text += '\n';
      record.text += line_;
      open = open_after(line_, delimiter_, true);
    }
    return true;
  }

  fs::path path_;
  char delimiter_;
  LineReader lines_;
  std::string line_;
  std::vector<std::string> columns_;
};

}  // namespace

std::vector<std::string> split_row(const Record& record, char delimiter, const fs::path& path) {
  const std::string& row = record.text;
  std::vector<std::string> fields(1);
  size_t at = 0;
  while (true) {
    if (at < row.size() && row[at] == '"') {
      for (++at; at < row.size(); ++at) {
        if (row[at] == '"' && (at + 1 == row.size() || row[at + 1] != '"')) {
          break;
        }
        at += row[at] == '"' ? 1 : 0;  // doubled quote
        fields.back() += row[at];
      }
      ++at;
      if (at < row.size() && row[at] != delimiter) {
        throw Error(
            ErrorKind::kData,
            fmt::format(
                "{}, row at line {}: field {} continues after its closing quote",
                path.string(),
                record.line,
                fields.size()),
            "write a quote inside a quoted field twice");
      }
    } else {
      const size_t end = std::min(row.find(delimiter, at), row.size());
      fields.back().assign(row, at, end - at);
      at = end;
    }
    if (at >= row.size()) {
      return fields;
    }
    ++at;
    fields.emplace_back();
  }
}

std::unique_ptr<TableReader> open_table(const fs::path& path, char delimiter) {
  return std::make_unique<DelimitedReader>(path, delimiter);
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    quoted += c == '"' ? "\"" : "";
  }
  return quoted + "\"";
}

}  // namespace lockstep::data
