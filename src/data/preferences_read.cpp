#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/nearest.h"
#include "data/column_rows.h"
#include "data/inputs.h"
#include "data/preferences.h"
#include "data/records.h"
#include "text/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostFaultsListed = 5;
constexpr size_t kPairsTakenApart = 1000;  // at once: the batches of TRL's map()

/// A record's fields by name, whatever file it is from. Null and what is not there are absent.
class Fields {
 public:
  Fields(nlohmann::json object, std::string place)
      : object_(std::move(object)),
        place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  bool has(const char* name) const {
    const auto found = object_.find(name);
    return found != object_.end() && !found->is_null();
  }
  /// Error (kData): it is not there, or no text.
  std::string text(const char* name) const {
    const nlohmann::json& value = find(name);
    if (value.is_string()) {
      return value.get<std::string>();
    }
    if (value.is_array() && !value.empty() && value.front().is_object()) {
      throw Error(
          ErrorKind::kData,
          fmt::format("{}: the field \"{}\" is a list of messages", place_, name),
          "preferences are read as texts: write the conversation as the model's template has it "
          "(in "
          "Python: tokenizer.apply_chat_template(messages, tokenize=False))");
    }
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the field \"{}\" is of type {}, not a string", place_, name, value.type_name()),
        "write the text as a JSON string, or leave the record out");
  }
  /// Of an answer that is judged by itself: true or false, 1 or 0.
  bool label() const {
    const nlohmann::json& value = find("label");
    const std::string word = value.is_string() ? value.get<std::string>() : value.dump();
    for (const auto& [name, is_good] :
         {std::pair{"true", true},
          {"True", true},
          {"1", true},
          {"false", false},
          {"False", false},
          {"0", false}}) {
      if (word == name) {
        return is_good;
      }
    }
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the label is {}", place_, value.dump()),
        "a label is true where the completion is wanted, and false where it is not");
  }

 private:
  const nlohmann::json& find(const char* name) const {
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
            "{} has no field \"{}\".{} It has: {}",
            place_,
            name,
            did_you_mean(name, names),
            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
        "rows have prompt, chosen and rejected, or chosen and rejected that begin alike; for "
        "preference.objective=kto also prompt, completion and label");
  }

  nlohmann::json object_;
  std::string place_;
};

Fields fields_of_json(const Record& record, const std::string& place) {
  nlohmann::json object = parse_json(record.text, place + ",");
  if (!object.is_object()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: a record is an object, and this is of type {}", place, object.type_name()),
        R"(write {"prompt": "...", "chosen": "...", "rejected": "..."} on each line)");
  }
  return {std::move(object), place};
}

Fields fields_of_row(
    const Record& record,
    char delimiter,
    const std::filesystem::path& path,
    const std::vector<std::string>& columns,
    const std::string& place) {
  if (text::valid_utf8_prefix(record.text) != record.text.size()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the row is not UTF-8", place),
        fmt::format("convert the file: iconv -f latin1 -t utf-8 {}", path.string()));
  }
  const std::vector<std::string> values = split_row(record, delimiter, path);
  if (values.size() != columns.size()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the row has {} fields, where the header has {}",
            place,
            values.size(),
            columns.size()),
        "put fields that hold the delimiter in quotes");
  }
  nlohmann::json object = nlohmann::json::object();
  for (size_t i = 0; i < columns.size(); ++i) {
    object[columns[i]] = values[i];
  }
  return {std::move(object), place};
}

/// Where the answers part, and at least one character before the shorter one's end; not behind a
/// space, which belongs to the answers: as TRL's extract_prompt.
size_t shared_beginning(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t at = 0;
  while (at < most && a[at] == b[at]) {
    ++at;
  }
  at = at == most && at > 0 ? at - 1 : at;
  while (at > 0 && text::is_continuation(a[at])) {
    --at;
  }
  return at > 0 && a[at - 1] == ' ' ? at - 1 : at;
}

PreferenceRow take_pair(const Fields& fields) {
  PreferenceRow row;
  row.answer = fields.text("chosen");
  row.rejected = fields.text("rejected");
  if (fields.has("prompt")) {
    row.prompt = fields.text("prompt");
  } else if (row.answer != row.rejected) {
    const size_t shared = shared_beginning(row.answer, row.rejected);
    row.prompt = row.answer.substr(0, shared);
    row.answer.erase(0, shared);
    row.rejected.erase(0, shared);
  }
  return row;
}

PreferenceRow take_single(const Fields& fields) {
  PreferenceRow row;
  row.prompt = fields.text("prompt");
  row.answer = fields.text("completion");
  row.is_good = fields.label();
  return row;
}

/// Rows of one kind of fault: how many, and the first of them.
class Faults {
 public:
  explicit Faults(std::string what) : what_(std::move(what)) {}
  void add(std::string place) {
    if (++count_ <= kMostFaultsListed) {
      first_.push_back(std::move(place));
    }
  }
  void report(std::string_view key, const char* remedy) const {
    if (count_ > 0) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}: {} row{} {}\n  {}{}",
              key,
              count_,
              count_ == 1 ? "" : "s",
              what_,
              fmt::join(first_, "\n  "),
              count_ > kMostFaultsListed
                  ? fmt::format("\n  and {} more", count_ - kMostFaultsListed)
                  : ""),
          remedy);
    }
  }

 private:
  std::string what_;
  size_t count_ = 0;
  std::vector<std::string> first_;
};

void check_answers(const Preferences& rows, std::string_view key, Judged judged) {
  Faults empty("with an empty answer"), same("whose chosen and rejected answers are the same");
  for (const PreferenceRow& row : rows.rows) {
    const bool is_pair = judged == Judged::kInPairs;
    if (row.answer.empty() || (is_pair && row.rejected.empty())) {
      empty.add(rows.place(row));
    } else if (is_pair && row.answer == row.rejected) {
      same.add(rows.place(row));
    }
  }
  empty.report(key, "write the answer, or leave the row out");
  same.report(key, "nothing is to be preferred there: leave these rows out");
}

/// Pairs as single answers, among rows that are single already.
std::vector<PreferenceRow> taken_apart(std::vector<PreferenceRow> pairs) {
  std::vector<PreferenceRow> rows;
  for (size_t begin = 0; begin < pairs.size(); begin += kPairsTakenApart) {
    const size_t end = std::min(pairs.size(), begin + kPairsTakenApart);
    for (const bool is_good : {true, false}) {
      for (size_t i = begin; i < end; ++i) {
        PreferenceRow row = pairs[i];
        row.answer = is_good ? row.answer : row.rejected;
        row.rejected.clear();
        row.is_good = is_good;
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace

std::string Preferences::place(const PreferenceRow& row) const {
  return place_in(files.at(row.file), row.line);
}

Preferences read_preferences(
    std::span<const std::string> words, Format format, std::string_view key, Judged judged) {
  Preferences result;
  std::vector<PreferenceRow> pairs;
  for (const InputFile& input : find_inputs(words, format, key)) {
    const bool is_table = input.format == Format::kCsv || input.format == Format::kTsv;
    if (!is_table && input.format != Format::kJson) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "preferences need records with fields, and {} is plain text", input.path.string()),
          "give JSON lines, CSV or TSV (data.format says which, where the name does not)");
    }
    const char delimiter = input.format == Format::kTsv ? '\t' : ',';
    const auto table = is_table ? open_table(input.path, delimiter) : nullptr;
    const auto lines = is_table ? nullptr : open_json(input.path);
    result.files.push_back(input.path);
    Record record;
    while (is_table ? table->next(record) : lines->next(record)) {
      const std::string place = place_in(input.path, record.line);
      const Fields fields =
          is_table ? fields_of_row(record, delimiter, input.path, table->columns(), place)
                   : fields_of_json(record, place);
      const bool is_single =
          judged == Judged::kSingly && !(fields.has("chosen") && fields.has("rejected"));
      PreferenceRow row = is_single ? take_single(fields) : take_pair(fields);
      row.file = result.files.size() - 1;
      row.line = record.line;
      (is_single ? result.rows : pairs).push_back(std::move(row));
    }
  }
  if (judged == Judged::kSingly) {
    check_answers({result.files, pairs}, key, Judged::kInPairs);
    pairs = taken_apart(std::move(pairs));
  }
  result.rows.insert(result.rows.end(), pairs.begin(), pairs.end());
  if (result.rows.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the files hold no rows ({} files)", key, result.files.size()),
        R"(write {"prompt": "...", "chosen": "...", "rejected": "..."} on each line)");
  }
  check_answers(result, key, judged);
  return result;
}

}  // namespace lockstep::data
