// Parses records into documents.
#include "data/documents.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "data/chat.h"
#include "data/column_rows.h"
#include "text/unicode/utf8.h"

namespace lockstep::data {
namespace {

using json = nlohmann::json;

/// State shared by all parsers of a file.
struct Context {
  std::string path;
  DataOptions options;
  std::atomic<bool> warned = false;
};

/// Makes the record valid UTF-8, or throws with the position of the error.
void check_utf8(Record& record, Context& context) {
  const size_t valid = text::valid_utf8_prefix(record.text);
  if (valid == record.text.size()) {
    return;
  }
  const std::string_view before = std::string_view(record.text).substr(0, valid);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t column =
      lines == 0 ? valid + static_cast<size_t>(record.column) : valid - before.rfind('\n');
  const std::string place = fmt::format(
      "{}, line {}, byte {} of the line: {:#04x} is not valid UTF-8",
      context.path,
      record.line + lines,
      column,
      static_cast<unsigned char>(record.text[valid]));
  if (context.options.invalid_utf8 == InvalidUtf8::kError) {
    throw Error(
        ErrorKind::kData,
        place,
        fmt::format(
            "convert the file (iconv -f latin1 -t utf-8 {}), or replace such bytes by U+FFFD with "
            "data.invalid_utf8=replace",
            context.path));
  }
  if (!context.warned.exchange(true)) {
    log_warning("{}; this and all other such bytes of the file are replaced by U+FFFD", place);
  }
  record.text = text::replace_invalid_utf8(record.text);
}

std::string list_names(std::vector<std::string> names) {
  constexpr size_t kMost = 12;
  const size_t all = names.size();
  names.resize(std::min(all, kMost));
  return fmt::format("{}{}", fmt::join(names, ", "), all > kMost ? ", ..." : "");
}

/// Returns the only name, or the only one that is not a usual name of another field.
std::optional<std::string> only_candidate(const std::vector<std::string>& names) {
  if (names.size() == 1) {
    return names.front();
  }
  std::optional<std::string> found;
  for (const std::string& name : names) {
    if (name == "text" || name == "label" || name == "id" || name == "idx") {
      continue;
    }
    if (found) {
      return std::nullopt;
    }
    found = name;
  }
  return found;
}

[[noreturn]] void fail_missing_field(
    const std::string& place,
    const std::string& field,
    std::string_view key,
    const std::vector<std::string>& names) {
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::string remedy = fmt::format("set the field: {}=...", key);
  if (key == "data.text_field" && has("instruction") && (has("output") || has("instances"))) {
    remedy = "for instruction data, set data.prompt=alpaca";
  } else if (key == "data.text_field" && (has("messages") || has("conversations"))) {
    remedy = "for chats, set data.prompt=chat";
  } else if (key == "data.text_field" && has("chosen") && has("rejected")) {
    remedy = "for preference data, set task.type=preference";
  } else if (const auto only = only_candidate(names)) {
    remedy = fmt::format("set {}={}", key, *only);
    if (names.front().find_first_of(";\t") != std::string::npos) {
      remedy =
          "the file seems to use another delimiter: convert it to commas, or set data.format=tsv";
    }
  }
  throw Error(
      ErrorKind::kData,
      fmt::format(
          "{} has no field \"{}\".{} Its fields: {}",
          place,
          field,
          did_you_mean(field, names),
          names.empty() ? "none" : list_names(names)),
      remedy);
}

// ---- JSON

std::string place_of(const Record& record, const Context& context) {
  return place_in(context.path, record.line);
}

json parse_record(const Record& record, const Context& context) {
  constexpr int64_t kMostPadding = int64_t{1} << 24;
  try {
    return parse_json(record.text, place_of(record, context) + ",");
  } catch (const Error& error) {
    if (error.message().find("is not JSON") == std::string::npos ||
        record.line + record.column > kMostPadding) {
      throw;
    }
    // Parse again with padding for the record's position in the file, so that the error has the
    // right line and column.
    const std::string padded = std::string(static_cast<size_t>(record.line - 1), '\n') +
                               std::string(static_cast<size_t>(record.column - 1), ' ') +
                               record.text;
    parse_json(padded, context.path);
    throw;
  }
}

/// Returns a field's string. If the field is optional, a missing field and null become an empty
/// string.
std::string take_string(
    const json& object,
    const std::string& field,
    std::string_view key,
    bool optional,
    const std::string& place) {
  const auto found = object.find(field);
  if (found == object.end() || (found->is_null() && optional)) {
    if (optional) {
      return "";
    }
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) {
      names.push_back(name);
    }
    fail_missing_field(place, field, key, names);
  }
  if (!found->is_string()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the field \"{}\" is of type {}, not a string", place, field, found->type_name()),
        "write the text as a JSON string, or remove the record");
  }
  return found->get<std::string>();
}

void take_instruction(
    const json& object,
    const Context& context,
    const std::string& place,
    std::vector<Document>& documents) {
  const DataOptions& options = context.options;
  const std::string instruction =
      take_string(object, options.instruction_field, "data.instruction_field", false, place);
  const auto add = [&](const json& instance, const std::string& where) {
    const std::string input =
        options.input_field.empty()
            ? ""
            : take_string(instance, options.input_field, "data.input_field", true, where);
    documents.push_back(
        {alpaca_prompt(instruction, input),
         take_string(instance, options.output_field, "data.output_field", false, where)});
  };
  if (options.prompt == Prompt::kPairs) {
    documents.push_back(
        {instruction,
         take_string(object, options.output_field, "data.output_field", false, place)});
    return;
  }
  const auto instances = object.find("instances");
  if (object.contains(options.output_field) || instances == object.end() ||
      !instances->is_array()) {
    add(object, place);
    return;
  }
  for (size_t i = 0; i < instances->size(); ++i) {  // the form of Alpaca's seed tasks
    const std::string where = fmt::format("{}, instance {}", place, i + 1);
    if (!(*instances)[i].is_object()) {
      throw Error(ErrorKind::kData, fmt::format("{} is not an object", where));
    }
    add((*instances)[i], where);
  }
}

/// Fields found in a labelled record.
struct LabelledFields {
  std::vector<std::string> texts;  // joined to one text
  std::string pair;
  std::vector<std::string> labels;
};

/// Splits a list such as "title, body" into names.
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    names.push_back(trimmed(name).value_or(""));
  }
  return names;
}

/// Finds the fields. If the user names none and the default one is missing, tries the fields of the
/// GLUE datasets.
template <class Has>
LabelledFields find_labelled_fields(const DataOptions& options, const Has& has) {
  const std::string& text = options.text_field;
  LabelledFields fields{{text}, options.text_pair_field, options.label_fields};
  if (text == "text" && fields.pair.empty() && !has("text")) {
    const bool is_pair = has("sentence1") && has("sentence2");
    fields.texts = {is_pair ? "sentence1" : has("sentence") ? "sentence" : text};
    fields.pair = is_pair ? "sentence2" : "";
  } else if (text.find(',') != std::string::npos && !has(text)) {
    fields.texts = names_in(text);
  }
  if (fields.labels == std::vector<std::string>{"label"} && !has("label") && has("labels")) {
    fields.labels = {"labels"};
  }
  return fields;
}

/// Returns the value of a label field. Null if it is optional and missing.
const json* find_label(
    const json& object,
    const std::string& field,
    const Context& context,
    const std::string& place) {
  const auto found = object.find(field);
  if (found != object.end()) {
    return &*found;
  }
  if (context.options.needs_labels) {
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items()) {
      names.push_back(name);
    }
    fail_missing_field(place, field, "data.label_field", names);
  }
  return nullptr;
}

/// Returns the values of several fields as one label. nullopt if all are empty.
std::optional<RawLabel> words_of_fields(std::vector<std::string> words) {
  const bool is_empty =
      std::all_of(words.begin(), words.end(), [](const auto& word) { return word.empty(); });
  return is_empty ? std::nullopt : std::optional(RawLabel{std::move(words), false});
}

std::optional<RawLabel> take_label(
    const json& object,
    const std::vector<std::string>& fields,
    const Context& context,
    const std::string& place) {
  const std::string& delimiter = context.options.label_delimiter;
  if (fields.size() == 1) {
    const json* found = find_label(object, fields.front(), context, place);
    return found == nullptr ? std::nullopt
                            : label_of_json(*found, delimiter, place, fields.front());
  }
  std::vector<std::string> words;
  for (const std::string& field : fields) {
    const json* found = find_label(object, field, context, place);
    const auto label = found == nullptr ? std::nullopt : label_of_json(*found, "", place, field);
    if (label && label->is_list) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: \"{}\" is a list, but there are several label fields", place, field),
          "name only the field of the list, or fields with 0 and 1 or with numbers");
    }
    words.push_back(label ? label->words.front() : "");
  }
  return words_of_fields(std::move(words));
}

void take_labelled(
    const json& object,
    const Record& record,
    const Context& context,
    const std::string& place,
    std::vector<Document>& documents) {
  const LabelledFields fields = find_labelled_fields(
      context.options, [&](const std::string& name) { return object.contains(name); });
  Document document;
  for (const std::string& field : fields.texts) {
    document.text += &field == fields.texts.data() ? "" : context.options.text_delimiter;
    document.text += take_string(object, field, "data.text_field", false, place);
  }
  if (!fields.pair.empty()) {
    document.pair = take_string(object, fields.pair, "data.text_pair_field", false, place);
  }
  document.label = take_label(object, fields.labels, context, place);
  document.line = record.line;
  documents.push_back(std::move(document));
}

/// Parses the record again, with its keys in file order, because templates print tools in this
/// order.
void take_chat(
    const std::string& text,
    const Context& context,
    const std::string& place,
    std::vector<Document>& documents) {
  const DataOptions& options = context.options;
  const Chat chat = read_chat(nlohmann::ordered_json::parse(text), options.messages_field, place);
  try {
    ChatText rendered = options.chat->render(chat, options.chat_loss);
    Document& document = documents.emplace_back();
    document.text = std::move(rendered.text);
    document.learned = std::move(rendered.learned);
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, fmt::format("{}: {}", place, error.message()), error.remedy());
  }
}

void parse_object(Record record, Context& context, std::vector<Document>& documents) {
  check_utf8(record, context);
  const json object = parse_record(record, context);
  const std::string place = place_of(record, context);
  if (!object.is_object()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: a record must be an object, but this one is of type {}",
            place,
            object.type_name()),
        R"(write {"text": "..."} on each line)");
  }
  if (!context.options.label_fields.empty()) {
    take_labelled(object, record, context, place, documents);
    return;
  }
  if (context.options.prompt == Prompt::kChat) {
    take_chat(record.text, context, place, documents);
    return;
  }
  if (context.options.prompt != Prompt::kNone) {
    take_instruction(object, context, place, documents);
    return;
  }
  documents.push_back(
      {"", take_string(object, context.options.text_field, "data.text_field", false, place)});
}

// ---- tables

struct Columns {
  size_t count = 0;
  size_t text = 0;                           // the text, or the output
  std::optional<size_t> instruction, input;  // for prompts
  std::vector<size_t> more_texts;            // for classification: joined to the text column
  std::optional<size_t> pair;                // for classification
  std::vector<size_t> labels;                // for classification
};

Columns find_columns(const std::vector<std::string>& names, const Context& context) {
  const DataOptions& options = context.options;
  const std::string place = context.path + ", line 1 (the header)";
  const auto find = [&](const std::string& field, std::string_view key) {
    const auto at = std::find(names.begin(), names.end(), field);
    if (at == names.end()) {
      fail_missing_field(place, field, key, names);
    }
    if (std::find(at + 1, names.end(), field) != names.end()) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{} names \"{}\" twice", place, field),
          fmt::format("rename one of them, or use another column: {}=...", key));
    }
    return static_cast<size_t>(at - names.begin());
  };
  Columns columns;
  columns.count = names.size();
  if (!options.label_fields.empty()) {
    const auto has = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const LabelledFields fields = find_labelled_fields(options, has);
    columns.text = find(fields.texts.front(), "data.text_field");
    for (size_t i = 1; i < fields.texts.size(); ++i) {
      columns.more_texts.push_back(find(fields.texts[i], "data.text_field"));
    }
    if (!fields.pair.empty()) {
      columns.pair = find(fields.pair, "data.text_pair_field");
    }
    for (const std::string& label : fields.labels) {
      if (options.needs_labels || has(label)) {
        columns.labels.push_back(find(label, "data.label_field"));
      }
    }
    return columns;
  }
  if (options.prompt == Prompt::kNone) {
    columns.text = find(options.text_field, "data.text_field");
    return columns;
  }
  columns.instruction = find(options.instruction_field, "data.instruction_field");
  columns.text = find(options.output_field, "data.output_field");
  if (options.prompt == Prompt::kAlpaca &&
      std::find(names.begin(), names.end(), options.input_field) != names.end()) {
    columns.input = find(options.input_field, "data.input_field");
  }
  return columns;
}

/// Returns the label of a row. Returns nullopt if there are several label columns and some are
/// empty.
std::optional<RawLabel> take_label(
    const std::vector<std::string>& fields, const Columns& columns, const DataOptions& options) {
  if (columns.labels.size() < options.label_fields.size() || columns.labels.empty()) {
    return std::nullopt;
  }
  if (columns.labels.size() == 1) {
    return label_of_text(fields[columns.labels.front()], options.label_delimiter);
  }
  std::vector<std::string> words;
  for (const size_t column : columns.labels) {
    words.push_back(trimmed(fields[column]).value_or(""));
  }
  return words_of_fields(std::move(words));
}

void parse_row(
    Record record,
    char delimiter,
    const Columns& columns,
    Context& context,
    std::vector<Document>& documents) {
  check_utf8(record, context);
  std::vector<std::string> fields = split_row(record, delimiter, context.path);
  if (fields.size() != columns.count) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the row has {} fields, but the header has {}",
            place_of(record, context),
            fields.size(),
            columns.count),
        "quote fields that contain the delimiter");
  }
  Document document;
  if (columns.instruction) {
    std::string& instruction = fields[*columns.instruction];
    document.prompt = context.options.prompt == Prompt::kPairs
                          ? std::move(instruction)
                          : alpaca_prompt(instruction, columns.input ? fields[*columns.input] : "");
  }
  document.line = record.line;
  document.label = take_label(fields, columns, context.options);
  document.pair = columns.pair ? std::move(fields[*columns.pair]) : "";
  document.text = std::move(fields[columns.text]);
  for (const size_t column : columns.more_texts) {
    document.text += context.options.text_delimiter + fields[column];
  }
  documents.push_back(std::move(document));
}

DocumentSource open_delimited(const std::shared_ptr<Context>& context, char delimiter) {
  auto table = open_table(context->path, delimiter);
  DocumentSource source;
  if (!table->columns().empty()) {
    const Columns columns = find_columns(table->columns(), *context);
    source.parse = [context, columns, delimiter](Record record, std::vector<Document>& documents) {
      parse_row(std::move(record), delimiter, columns, *context, documents);
    };
  }
  source.records = std::move(table);
  return source;
}

DocumentSource open_whole(
    const InputFile& input, const DataOptions& options, const TextCutting& cutting) {
  auto context = std::make_shared<Context>();
  context->path = input.path.string();
  context->options = options;
  if (options.prompt == Prompt::kChat && input.format != Format::kJson) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("data.prompt=chat requires lists of messages, and {} has none", context->path),
        "use JSON lines (data.format=jsonl if the file name has another extension)");
  }
  switch (input.format) {
    case Format::kCsv:
      return open_delimited(context, ',');
    case Format::kTsv:
      return open_delimited(context, '\t');
    case Format::kJson:
      return {open_json(input.path), [context](Record record, std::vector<Document>& documents) {
                parse_object(std::move(record), *context, documents);
              }};
    case Format::kText:
    case Format::kAuto:
      break;
  }
  if (!options.label_fields.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "classification requires records with fields, and {} is plain text", context->path),
        "use JSON lines, CSV or TSV (set data.format if the file name has another extension)");
  }
  if (options.prompt != Prompt::kNone) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "data.prompt={} requires records with fields, and {} is plain text",
            name_of(options.prompt),
            context->path),
        "use JSON lines, CSV or TSV (set data.format if the file name has another extension)");
  }
  return {
      open_text(input.path, cutting), [context](Record record, std::vector<Document>& documents) {
        check_utf8(record, *context);
        documents.push_back({"", std::move(record.text), record.begins, record.ends});
      }};
}

}  // namespace

std::string alpaca_prompt(std::string_view instruction, std::string_view input) {
  if (input.empty()) {
    return fmt::format(
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes "
        "the request.\n\n### Instruction:\n{}\n\n### Response:",
        instruction);
  }
  return fmt::format(
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n### "
      "Instruction:\n{}\n\n### Input:\n{}\n\n### Response:",
      instruction,
      input);
}

DocumentSource open_documents(
    const InputFile& input, const DataOptions& options, const TextCutting& cutting) {
  DocumentSource source = open_whole(input, options, cutting);
  if (input.rows) {
    source.records = within(std::move(source.records), input.rows->begin, input.rows->end);
  }
  return source;
}

}  // namespace lockstep::data
