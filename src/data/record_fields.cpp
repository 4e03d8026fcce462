// Reads the fields of records.
#include "data/record_fields.h"

#include <memory>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/nearest.h"
#include "data/column_rows.h"
#include "data/inputs.h"
#include "data/records.h"
#include "text/unicode/utf8.h"

namespace lockstep::data {
namespace {

nlohmann::json object_of_json(
    const Record& record, const std::string& place, const std::string& example) {
  nlohmann::json object = parse_json(record.text, place + ",");
  if (!object.is_object()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: a record must be an object, but this one is of type {}",
            place,
            object.type_name()),
        example);
  }
  return object;
}

nlohmann::json object_of_row(
    const Record& record,
    char delimiter,
    const std::filesystem::path& path,
    const std::vector<std::string>& columns,
    const std::string& place) {
  if (text::valid_utf8_prefix(record.text) != record.text.size()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the row is not valid UTF-8", place),
        fmt::format("convert the file: iconv -f latin1 -t utf-8 {}", path.string()));
  }
  const std::vector<std::string> values = split_row(record, delimiter, path);
  if (values.size() != columns.size()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the row has {} fields, but the header has {}",
            place,
            values.size(),
            columns.size()),
        "quote fields that contain the delimiter");
  }
  nlohmann::json object = nlohmann::json::object();
  for (size_t i = 0; i < columns.size(); ++i) {
    object[columns[i]] = values[i];
  }
  return object;
}

}  // namespace

bool RecordFields::has(const std::string& name) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

const nlohmann::json& RecordFields::find(const std::string& name) const {
  if (has(name)) {
    return object_.at(name);
  }
  std::vector<std::string> names;
  for (const auto& [key, value] : object_.items()) {
    names.push_back(key);
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{} has no field \"{}\".{} Its fields: {}",
          place_,
          name,
          did_you_mean(name, names),
          names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
      example_);
}

std::string RecordFields::text(const std::string& name) const {
  const nlohmann::json& value = find(name);
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_array() && !value.empty() && value.front().is_object()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the field \"{}\" is a list of messages", place_, name),
        "such rows must be strings: render the conversation with the model's template (in Python: "
        "tokenizer.apply_chat_template(messages, tokenize=False))");
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{}: the field \"{}\" is of type {}, not a string", place_, name, value.type_name()),
      "write the text as a JSON string, or remove the record");
}

nlohmann::ordered_json RecordFields::ordered() const {
  return text_.empty() ? nlohmann::ordered_json(object_) : nlohmann::ordered_json::parse(text_);
}

std::vector<std::string> RecordFields::texts(const std::string& name) const {
  const nlohmann::json& value = find(name);
  if (!value.is_array()) {
    return {text(name)};
  }
  std::vector<std::string> result;
  for (const nlohmann::json& each : value) {
    if (!each.is_string()) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: the field \"{}\" is a list that contains a value of type {}",
              place_,
              name,
              each.type_name()),
          "write texts as JSON strings");
    }
    result.push_back(each.get<std::string>());
  }
  if (result.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the field \"{}\" is an empty list", place_, name),
        "add a text, or remove the record");
  }
  return result;
}

std::vector<std::filesystem::path> read_records(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    std::string_view what,
    const std::string& example,
    const std::function<void(const RecordFields& fields, size_t file)>& take) {
  std::vector<std::filesystem::path> files;
  for (const InputFile& input : find_inputs(words, format, key)) {
    const bool is_table = input.format == Format::kCsv || input.format == Format::kTsv;
    if (!is_table && input.format != Format::kJson) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{} require records with fields, and {} is plain text", what, input.path.string()),
          "use JSON lines, CSV, TSV or Parquet (set data.format if the file name has another "
          "extension)");
    }
    const char delimiter = input.format == Format::kTsv ? '\t' : ',';
    auto table = is_table ? open_table(input.path, delimiter) : nullptr;
    const std::vector<std::string> columns =
        is_table ? table->columns() : std::vector<std::string>();
    std::unique_ptr<RecordReader> rows = is_table ? std::move(table) : open_json(input.path);
    if (input.rows) {
      rows = within(std::move(rows), input.rows->begin, input.rows->end);
    }
    files.push_back(input.path);
    Record record;
    while (rows->next(record)) {
      const std::string place = place_in(input.path, record.line);
      take(
          RecordFields(
              is_table ? object_of_row(record, delimiter, input.path, columns, place)
                       : object_of_json(record, place, example),
              is_table ? std::string() : record.text,
              place,
              record.line,
              example),
          files.size() - 1);
    }
  }
  return files;
}

}  // namespace lockstep::data
