// Removes each field of a record in turn and compares the result.
#include "data/field_use.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "data/records.h"

namespace lockstep::data {
namespace {

using Json = nlohmann::ordered_json;

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

std::vector<Document> documents_of(const DocumentSource& source, Record record) {
  std::vector<Document> documents;
  source.parse(std::move(record), documents);
  return documents;
}

/// Returns a row of a table with the values of `object`; missing columns are empty.
std::string row_of(const Json& object, const std::vector<std::string>& columns, char delimiter) {
  std::string row;
  for (const std::string& column : columns) {
    std::string quoted;
    for (const char each : object.value(column, std::string())) {
      quoted += each == '"' ? std::string("\"\"") : std::string(1, each);
    }
    row += fmt::format("{}\"{}\"", row.empty() ? "" : std::string(1, delimiter), quoted);
  }
  return row;
}

}  // namespace

void FieldUse::observe(const Json& record, const IsSame& is_same) {
  if (records_ == kRecords || !record.is_object()) {
    return;
  }
  ++records_;
  for (const auto& [name, value] : record.items()) {
    if (is_empty(value)) {
      continue;
    }
    auto field = std::ranges::find(fields_, name, &Field::name);
    if (field == fields_.end()) {
      field = fields_.insert(fields_.end(), {name, false});
    }
    if (!field->is_used) {
      Json without = record;
      without.erase(name);
      try {
        field->is_used = !is_same(without);
      } catch (const Error&) {
        field->is_used = true;
      }
    }
  }
}

std::string FieldUse::unused() const {
  std::vector<std::string> used, others;
  for (const Field& field : fields_) {
    (field.is_used ? used : others).push_back(field.name);
  }
  return others.empty()
             ? ""
             : fmt::format("{} used; {} unused", fmt::join(used, ", "), fmt::join(others, ", "));
}

FieldUse field_use(const InputFile& input, const DataOptions& options) {
  FieldUse use;
  if (input.format == Format::kText) {
    return use;
  }
  const bool is_table = input.format == Format::kCsv || input.format == Format::kTsv;
  const char delimiter = input.format == Format::kTsv ? '\t' : ',';
  const DocumentSource source = open_documents(input, options, {});
  const auto columns =
      is_table ? open_table(input.path, delimiter)->columns() : std::vector<std::string>();
  Record record;
  for (int i = 0; i < FieldUse::kRecords && source.records->next(record); ++i) {
    std::vector<Document> documents;
    try {
      documents = documents_of(source, record);
    } catch (const Error&) {
      break;  // reading the data reports it
    }
    Json object;
    if (is_table) {
      const std::vector<std::string> values = split_row(record, delimiter, input.path);
      for (size_t column = 0; column < columns.size(); ++column) {
        object[columns[column]] = values[column];
      }
    } else {
      object = Json::parse(record.text);
    }
    use.observe(object, [&](const Json& without) {
      Record changed = record;
      changed.text = is_table ? row_of(without, columns, delimiter) : without.dump();
      return documents_of(source, std::move(changed)) == documents;
    });
  }
  return use;
}

}  // namespace lockstep::data
