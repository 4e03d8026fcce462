// Records whose fields have names: JSON objects, rows of tables.
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

/// A record's fields by name, whatever file it is from. Null and what is not there are absent.
class RecordFields {
 public:
  /// `example` tells what such records have, for errors.
  RecordFields(
      nlohmann::json object, std::string text, std::string place, int64_t line, std::string example)
      : object_(std::move(object)),
        text_(std::move(text)),
        place_(std::move(place)),
        line_(line),
        example_(std::move(example)) {}

  /// "pairs.jsonl, line 7"
  const std::string& place() const { return place_; }
  int64_t line() const { return line_; }
  bool has(const std::string& name) const;
  /// Error (kData): there is none, with the nearest name.
  const nlohmann::json& find(const std::string& name) const;
  /// Error (kData): it is not there, or no text.
  std::string text(const std::string& name) const;
  /// The record with its keys in the order of the file, which chat templates write out.
  nlohmann::ordered_json ordered() const;
  /// The same of a list of texts, or of one text. Error (kData): there is none in it.
  std::vector<std::string> texts(const std::string& name) const;

 private:
  nlohmann::json object_;
  std::string text_;  // the record as JSON; empty for a row of a table
  std::string place_;
  int64_t line_;
  std::string example_;
};

/// Shows `take` each record of the files that `words` name, in their order: JSON lines, CSV, TSV.
/// Returns the files; `take` is told each one's number among them. `key` says where the words come
/// from, `what` what the records are ("preferences"). Error (kData, kConfig) with file and line.
std::vector<std::filesystem::path> read_records(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    std::string_view what,
    const std::string& example,
    const std::function<void(const RecordFields& fields, size_t file)>& take);

}  // namespace lockstep::data
