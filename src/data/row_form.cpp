// Recognizes chats, prompts with completions and instructions by their fields.
#include "data/row_form.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "data/column_rows.h"
#include "data/records.h"

namespace lockstep::data {
namespace {

constexpr int kRowsRead = 20;

const nlohmann::json* field_of(const nlohmann::json& row, const std::string& name) {
  const auto found = row.find(name);
  return found == row.end() || found->is_null() ? nullptr : &*found;
}

/// Returns the forms whose fields the row has.
std::vector<RowForm> forms_of(const nlohmann::json& row, const DataOptions& options) {
  std::vector<RowForm> forms;
  const auto has_list = [&](const std::string& name) {
    const nlohmann::json* found = field_of(row, name);
    return found != nullptr && found->is_array();
  };
  for (const std::string& name : {options.messages_field, std::string("conversations")}) {
    if (has_list(name)) {
      forms.push_back({Prompt::kChat, name});
      break;
    }
  }
  const nlohmann::json *prompt = field_of(row, "prompt"), *completion = field_of(row, "completion");
  if (prompt != nullptr && completion != nullptr) {
    const bool are_texts = prompt->is_string() && completion->is_string();
    forms.push_back(
        are_texts ? RowForm{Prompt::kPairs, "prompt, completion", "prompt", "completion"}
                  : RowForm{Prompt::kChat, "prompt, completion"});
  }
  const std::string& instruction = options.instruction_field;
  for (const std::string& output : {options.output_field, std::string("instances")}) {
    if (instruction == "instruction" && field_of(row, instruction) != nullptr &&
        field_of(row, output) != nullptr) {
      forms.push_back({Prompt::kAlpaca, instruction + ", " + output});
      break;
    }
  }
  return forms;
}

RowForm form_of(const nlohmann::json& row, const DataOptions& options, const std::string& place) {
  if (field_of(row, options.text_field) != nullptr) {
    return {};
  }
  const nlohmann::json* label = field_of(row, "label");
  std::vector<RowForm> forms = forms_of(row, options);
  if (forms.size() == 1 && forms[0].fields == "prompt, completion" && label != nullptr &&
      label->is_boolean()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the row has a prompt, a completion and a label", place),
        "set task.type=preference preference.objective=kto to learn from the labels, or "
        "data.prompt=chat "
        "to train on every completion");
  }
  if (forms.size() > 1) {
    std::vector<std::string> found, words;
    for (const RowForm& form : forms) {
      found.push_back(fmt::format("{} ({})", name_of(form.prompt), form.fields));
      words.push_back(fmt::format("data.prompt={}", name_of(form.prompt)));
    }
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the row has the fields of {}", place, fmt::join(found, " and of ")),
        fmt::format("set {}", fmt::join(words, " or ")));
  }
  return forms.empty() ? RowForm{} : std::move(forms.front());
}

/// Returns true if rows of both forms can be read with the first's. Chats include prompts with
/// completions.
bool is_compatible(const RowForm& first, const RowForm& other) {
  return first.prompt == other.prompt ||
         (first.prompt == Prompt::kChat && other.prompt == Prompt::kPairs);
}

/// Reads rows as JSON objects. Values of tables are strings.
class FirstRows {
 public:
  explicit FirstRows(const InputFile& input)
      : input_(input),
        delimiter_(input.format == Format::kTsv ? '\t' : ',') {
    if (input.format == Format::kJson) {
      records_ = open_json(input.path);
    } else {
      auto table = open_table(input.path, delimiter_);
      columns_ = table->columns();
      records_ = std::move(table);
    }
    if (input.rows) {
      records_ = within(std::move(records_), input.rows->begin, input.rows->end);
    }
  }

  /// Returns nullopt at the end of the file and at a row that is not valid.
  std::optional<nlohmann::json> next(Record& record) {
    if (!records_->next(record)) {
      return std::nullopt;
    }
    nlohmann::json row = nlohmann::json::object();
    if (input_.format == Format::kJson) {
      row = nlohmann::json::parse(record.text, nullptr, /*allow_exceptions=*/false);
      return row.is_object() ? std::optional(std::move(row)) : std::nullopt;
    }
    const std::vector<std::string> values = split_row(record, delimiter_, input_.path);
    for (size_t i = 0; i < std::min(values.size(), columns_.size()); ++i) {
      row[columns_[i]] = values[i];
    }
    return row;
  }

 private:
  const InputFile& input_;
  char delimiter_;
  std::vector<std::string> columns_;
  std::unique_ptr<RecordReader> records_;
};

}  // namespace

RowForm recognize_rows(
    const std::vector<InputFile>& inputs, const DataOptions& options, std::string_view key) {
  if (inputs.empty() || inputs.front().format == Format::kText) {
    return {};
  }
  const InputFile& input = inputs.front();
  FirstRows rows(input);
  std::optional<RowForm> first;
  Record record;
  for (int i = 0; i < kRowsRead; ++i) {
    const auto row = rows.next(record);
    if (!row) {
      break;
    }
    const std::string place = place_in(input.path.string(), record.line);
    const RowForm form = form_of(*row, options, place);
    const bool is_known = form.prompt != Prompt::kNone;  // the parser reports missing fields
    if (first && is_known && !is_compatible(*first, form)) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: {} rows have different forms: data.prompt={} and, in this row, data.prompt={}",
              place,
              key,
              name_of(first->prompt),
              name_of(form.prompt)),
          "separate them into files and convert one of them, or set data.prompt");
    }
    first = first ? first : form;
  }
  return first.value_or(RowForm{});
}

}  // namespace lockstep::data
