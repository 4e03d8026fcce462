// Splits JSON lines and arrays into records.
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "data/line_reader.h"
#include "data/records.h"
#include "data/text_cut.h"

namespace lockstep::data {
namespace {

class JsonReader final : public RecordReader {
 public:
  explicit JsonReader(const std::filesystem::path& path) : path_(path), lines_(open_bytes(path)) {
    while (next_line()) {
      if (!is_blank(line_)) {
        at_ = line_.find_first_not_of(" \t\r");
        array_ = line_[at_] == '[';
        at_ = array_ ? at_ + 1 : 0;
        held_ = true;
        return;
      }
    }
  }

  bool next(Record& record) override { return array_ ? next_element(record) : next_object(record); }

 private:
  bool next_line() {
    LineEnd end{};
    if (!lines_.next(line_, end, kLongestRecord)) {
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
          "JSON lines have one object per line; if the file has another format, set data.format");
    }
    at_ = 0;
    return true;
  }

  bool next_object(Record& record) {
    do {
      if (!std::exchange(held_, false) && !next_line()) {
        return false;
      }
    } while (is_blank(line_));
    record = Record{std::move(line_), lines_.number()};
    return true;
  }

  /// Returns the next non-space character, or 0 at the end of the file.
  char peek() {
    while (true) {
      at_ = line_.find_first_not_of(" \t\r\n", at_);
      if (at_ != std::string::npos) {
        return line_[at_];
      }
      if (!next_line()) {
        line_.clear();
        at_ = 0;
        return '\0';
      }
    }
  }

  bool next_element(Record& record) {
    if (closed_) {
      return false;
    }
    char c = peek();
    if (c == ',' && !first_) {
      ++at_;
      c = peek();
      if (c == ']') {
        fail("unexpected end after a comma");
      }
    } else if (c != ']' && c != '\0' && !first_) {
      fail("a comma or ] is missing");
    }
    if (c == '\0') {
      fail("the array is not closed before the end of the file");
    }
    if (c == ']') {
      ++at_;
      if (peek() != '\0') {
        fail("unexpected content after the array");
      }
      closed_ = true;
      return false;
    }
    if (c == ',') {
      fail("missing element before a comma");
    }
    first_ = false;
    take_value(record);
    return true;
  }

  /// Extracts the value that starts at at_. Only finds its end; the content is parsed later.
  void take_value(Record& record) {
    record = Record{"", lines_.number(), static_cast<int64_t>(at_) + 1};
    int64_t depth = 0;
    bool quoted = false;
    while (true) {
      const size_t begin = at_;
      for (; at_ < line_.size(); ++at_) {
        const char c = line_[at_];
        if (quoted) {
          if (c == '\\') {
            ++at_;
          } else if (c == '"') {
            quoted = false;
          }
        } else if (c == '"') {
          quoted = true;
        } else if (c == '{' || c == '[') {
          ++depth;
        } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
          record.text.append(line_, begin, at_ - begin);
          return;
        } else if (c == '}' || c == ']') {
          if (--depth == 0) {
            ++at_;
            record.text.append(line_, begin, at_ - begin);
            return;
          }
        }
      }
      record.text.append(line_, begin);
      record.text += '\n';
      if (record.text.size() > kLongestRecord || !next_line()) {
        throw Error(
            ErrorKind::kData,
            fmt::format(
                "{}: the element that starts at line {}, column {} does not end{}",
                path_.string(),
                record.line,
                record.column,
                record.text.size() > kLongestRecord
                    ? fmt::format(" within {} MiB", kLongestRecord >> 20)
                    : " before the end of the file"),
            "the file may be truncated, or a quote or a brace is missing there");
      }
    }
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{} is not JSON at line {}, column {}: {}",
            path_.string(),
            lines_.number(),
            at_ + 1,
            what),
        "fix the file, or download it again if it is truncated");
  }

  std::filesystem::path path_;
  LineReader lines_;
  std::string line_;
  size_t at_ = 0;      // offset in line_
  bool held_ = false;  // line_ has been read but not used
  bool array_ = false, first_ = true, closed_ = false;
};

class PartReader : public RecordReader {
 public:
  PartReader(std::unique_ptr<RecordReader> records, int64_t begin, int64_t end)
      : records_(std::move(records)),
        begin_(begin),
        end_(end) {}

  bool next(Record& record) override {
    while (read_ < begin_) {
      ++read_;
      if (!records_->next(record)) {
        return false;
      }
    }
    return read_++ < end_ && records_->next(record);
  }

 private:
  std::unique_ptr<RecordReader> records_;
  int64_t begin_, end_, read_ = 0;
};

}  // namespace

std::unique_ptr<RecordReader> open_json(const std::filesystem::path& path) {
  if (has_columns(path)) {
    return open_columns(path);
  }
  return std::make_unique<JsonReader>(path);
}

std::unique_ptr<RecordReader> within(
    std::unique_ptr<RecordReader> records, int64_t begin, int64_t end) {
  return std::make_unique<PartReader>(std::move(records), begin, end);
}

}  // namespace lockstep::data
