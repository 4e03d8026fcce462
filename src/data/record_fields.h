// Records with named fields: JSON objects or rows of tables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/options.h"

namespace lockstep::data {

/// Fields of a record by name, for any file format. Fields that are null count as missing.
class RecordFields {
 public:
  /// `example` is an example of a valid record, for error messages.
  RecordFields(
      nlohmann::json object, std::string text, std::string place, int64_t line, std::string example)
      : object_(std::move(object)),
        text_(std::move(text)),
        place_(std::move(place)),
        line_(line),
        example_(std::move(example)) {}

  /// Returns "pairs.jsonl, line 7".
  const std::string& place() const { return place_; }
  int64_t line() const { return line_; }
  bool has(const std::string& name) const;
  /// Returns a field. Throws Error (data) with the nearest name if it is missing.
  const nlohmann::json& find(const std::string& name) const;
  /// Returns a string. Throws Error (data) if the field is missing or not a string.
  std::string text(const std::string& name) const;
  /// Returns the record with its keys in file order, in which chat templates print them.
  nlohmann::ordered_json ordered() const;
  /// Returns a list of strings; a single string is a list of one. Throws Error (data) if the list
  /// is empty.
  std::vector<std::string> texts(const std::string& name) const;

 private:
  nlohmann::json object_;
  std::string text_;  // the record in JSON; empty for a row of a table
  std::string place_;
  int64_t line_;
  std::string example_;
};

/// Calls `take` for each record of the files that `words` name, in order, with the index of its
/// file. Supports JSON lines, CSV and TSV. Returns the files. `key` is the configuration key of the
/// words, `what` a word for the records ("preferences"). Throws Error (data, config) with file and
/// line.
std::vector<std::filesystem::path> read_records(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    std::string_view what,
    const std::string& example,
    const std::function<void(const RecordFields& fields, size_t file)>& take);

}  // namespace lockstep::data
