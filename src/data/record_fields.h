// Records with named fields: JSON objects and rows of tables.
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

/// Fields of a record by name, independent of the file format. Null counts as absent.
class RecordFields {
 public:
  /// `example` shows the expected record in errors.
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
  /// Throws Error (data) with the nearest name if the field is absent.
  const nlohmann::json& find(const std::string& name) const;
  /// Throws Error (data) if it is absent or not a string.
  std::string text(const std::string& name) const;
  /// Returns the record with its keys in file order; chat templates print keys in this order.
  nlohmann::ordered_json ordered() const;
  /// The same for a list of strings or a single one. Throws Error (data) if the list is empty.
  std::vector<std::string> texts(const std::string& name) const;

 private:
  nlohmann::json object_;
  std::string text_;  // the record as JSON; empty for a row of a table
  std::string place_;
  int64_t line_;
  std::string example_;
};

/// Calls `take` for each record of the files that `words` name, in order: JSON lines, CSV, TSV.
/// Returns the files, and passes each one's index to `take`. `key` names the configuration key of
/// the words, `what` the records ("preferences"). Throws Error (data, config) with file and line.
std::vector<std::filesystem::path> read_records(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    std::string_view what,
    const std::string& example,
    const std::function<void(const RecordFields& fields, size_t file)>& take);

}  // namespace lockstep::data
