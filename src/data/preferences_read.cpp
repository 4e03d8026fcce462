// Reads preference rows and checks their fields.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/parse_double.h"
#include "data/field_use.h"
#include "data/preferences.h"
#include "data/record_fields.h"
#include "text/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr const char* kExample =
    "rows need prompt, chosen and rejected, or chosen and rejected with a common beginning; for "
    "preference.objective=kto also prompt, completion and label";
constexpr size_t kMostFaultsListed = 5;
constexpr size_t kPairsTakenApart = 1000;  // batch size of TRL's map()

/// Returns the label of an individually scored answer: true or false, 1 or 0.
bool label_of(const RecordFields& fields) {
  const nlohmann::json& value = fields.find("label");
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
      fmt::format("{}: the label is {}", fields.place(), value.dump()),
      "a label must be true for a desirable completion, otherwise false");
}

/// Returns the length of the common prefix, like TRL's extract_prompt. At least one character of
/// the shorter answer remains, and the prefix does not end after a space, which belongs to the
/// answers.
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

bool has_messages(const RecordFields& fields, const char* answer) {
  return fields.has(answer) && fields.find(answer).is_array();
}

using Messages = nlohmann::ordered_json;

/// Chat record and the template's other inputs. Keys are in file order, because templates print
/// tool calls in this order.
struct ChatRecord {
  Messages object;
  Chat chat;  // without messages
  std::string place;
};

Messages messages_of(const ChatRecord& record, const char* name) {
  const Messages value = record.object.value(name, Messages());
  const bool are_messages =
      value.is_array() && std::ranges::all_of(value, [](const auto& message) {
        return message.is_object() && message.contains("role") && message["role"].is_string();
      });
  if (!are_messages) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the field \"{}\" is not a list of messages", record.place, name),
        R"(a row contains only strings or only messages: [{"role": "user", "content": "..."}])");
  }
  for (const auto& message : value) {
    for (const char* unused : {"weight", "train"}) {
      if (message.contains(unused)) {
        throw Error(
            ErrorKind::kData,
            fmt::format("{}: a message of \"{}\" has \"{}\"", record.place, name, unused),
            "preference rows train on the whole answer: remove the key");
      }
    }
  }
  return value;
}

Chat chat_of(const ChatRecord& record, const Messages& prompt, const Messages& answer) {
  Chat chat = record.chat;
  chat.messages = prompt;
  chat.messages.insert(chat.messages.end(), answer.begin(), answer.end());
  return chat;
}

size_t end_of_shared(std::string_view a, std::string_view b) {
  size_t at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  while (at > 0 && at < a.size() && text::is_continuation(a[at])) {
    --at;
  }
  return at;
}

/// Converts a record of messages. The prompt ends where an answer starts to differ, because some
/// templates add more to a generation prompt than to a completed message.
PreferenceRow row_of_chat(
    const Messages& prompt,
    const std::vector<Messages>& answers,
    const ChatTemplate& chats,
    const ChatRecord& record) {
  if (prompt.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: there is no message before the answer", record.place),
        "add the field \"prompt\", or answers whose first messages are the same");
  }
  PreferenceRow row;
  row.is_chat = true;
  row.prompt = chats.prompt(chat_of(record, prompt, Messages::array()));
  std::vector<std::string> texts;
  for (const Messages& answer : answers) {
    texts.push_back(chats.whole(chat_of(record, prompt, answer)));
    row.prompt.resize(end_of_shared(row.prompt, texts.back()));
  }
  row.answer = texts.front().substr(row.prompt.size());
  row.rejected = texts.size() > 1 ? texts.back().substr(row.prompt.size()) : "";
  return row;
}

std::shared_ptr<const ChatTemplate> template_for(
    const RecordFields& fields, const ChatTemplateSource& chats) {
  try {
    return chats();
  } catch (const Error& error) {
    throw Error(
        ErrorKind::kData, fmt::format("{}: {}", fields.place(), error.message()), error.remedy());
  }
}

ChatRecord chat_record(const RecordFields& fields) {
  ChatRecord record{fields.ordered(), {}, fields.place()};
  read_template_fields(record.object, record.place, record.chat);
  return record;
}

PreferenceRow take_pair_of_chats(const RecordFields& fields, const ChatTemplate& chats) {
  const ChatRecord record = chat_record(fields);
  Messages chosen = messages_of(record, "chosen"), rejected = messages_of(record, "rejected");
  Messages prompt = Messages::array();
  if (fields.has("prompt")) {
    prompt = messages_of(record, "prompt");
  } else {
    while (chosen.size() > 1 && rejected.size() > 1 && chosen.front() == rejected.front()) {
      prompt.push_back(chosen.front());
      chosen.erase(chosen.begin());
      rejected.erase(rejected.begin());
    }
  }
  return row_of_chat(prompt, {chosen, rejected}, chats, record);
}

PreferenceRow take_single_chat(const RecordFields& fields, const ChatTemplate& chats) {
  const ChatRecord record = chat_record(fields);
  PreferenceRow row = row_of_chat(
      messages_of(record, "prompt"), {messages_of(record, "completion")}, chats, record);
  row.is_good = label_of(fields);
  return row;
}

PreferenceRow take_pair(const RecordFields& fields) {
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

PreferenceRow take_single(const RecordFields& fields) {
  PreferenceRow row;
  row.prompt = fields.text("prompt");
  row.answer = fields.text("completion");
  row.is_good = label_of(fields);
  return row;
}

/// Returns the field `margin` of a pair. nullopt if there is none.
std::optional<double> margin_of(const RecordFields& fields) {
  if (!fields.has("margin")) {
    return std::nullopt;
  }
  const nlohmann::json& value = fields.find("margin");
  std::optional<double> margin;
  if (value.is_number()) {
    margin = value.get<double>();
  } else if (value.is_string()) {  // from a CSV or Parquet table
    const std::string text = value.get<std::string>();
    char* end = nullptr;
    const double number = parse_double(text.c_str(), &end);
    margin = !text.empty() && *end == '\0' ? std::optional(number) : std::nullopt;
  }
  if (!margin || !std::isfinite(*margin)) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the margin is {}", fields.place(), value.dump()),
        "a margin must be a number: the minimum difference between the rewards of the chosen and "
        "the rejected answer");
  }
  return margin;
}

/// Rows with one kind of error: their number and the first ones.
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
  Faults empty("with an empty answer"), same("with equal chosen and rejected answers");
  for (const PreferenceRow& row : rows.rows) {
    const bool is_pair = judged == Judged::kInPairs;
    if (row.answer.empty() || (is_pair && row.rejected.empty())) {
      empty.add(rows.place(row));
    } else if (is_pair && row.answer == row.rejected) {
      same.add(rows.place(row));
    }
  }
  empty.report(key, "add the answer, or remove the row");
  same.report(key, "there is nothing to prefer: remove these rows");
}

/// Splits pairs into individual answers.
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

/// Throws Error (data) if the row has a field that other programs use but this one ignores.
/// Otherwise the model would be trained on less than the user provided, without notice.
void refuse_unread_fields(const RecordFields& fields, bool is_chat) {
  const auto refuse = [&](const char* name, const char* remedy) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the field \"{}\" is not supported in preference rows", fields.place(), name),
        remedy);
  };
  const auto has_value = [&](const char* name) {
    if (!fields.has(name)) {
      return false;
    }
    const nlohmann::json& value = fields.find(name);
    return !(value.is_string() && value.get_ref<const std::string&>().empty()) &&
           !(value.is_array() && value.empty());
  };
  for (const char* name : {"images", "image", "videos", "audio"}) {
    if (has_value(name)) {
      refuse(
          name,
          "only text is trained on: remove the rows, or remove the column if the text does not "
          "depend on it");
    }
  }
  for (const char* name : {"question", "instruction", "input", "query"}) {
    if (has_value(name) && !fields.has("prompt")) {
      refuse(
          name,
          "rename it to \"prompt\"; otherwise the prompt is the common beginning of both answers");
    }
  }
  if (has_value("system")) {
    refuse(
        "system",
        is_chat ? "make it the first message of the prompt: {\"role\": \"system\", ...}"
                : "write it at the start of \"prompt\", as in the model's template");
  }
  for (const char* name : {"tools", "chat_template_kwargs"}) {
    if (!is_chat && has_value(name)) {
      refuse(name, "templates apply only to rows of messages: use lists of messages");
    }
  }
}

}  // namespace

std::string Preferences::place(const PreferenceRow& row) const {
  return place_in(files.at(row.file), row.line);
}

Preferences read_preferences(
    std::span<const std::string> words,
    Format format,
    std::string_view key,
    Judged judged,
    const ChatTemplateSource& chats) {
  Preferences result;
  std::vector<PreferenceRow> pairs;
  std::shared_ptr<const ChatTemplate> chat_template;
  const auto is_single = [&](const RecordFields& fields) {
    return judged == Judged::kSingly && !(fields.has("chosen") && fields.has("rejected"));
  };
  const auto take_row = [&](const RecordFields& fields) {
    const bool singly = is_single(fields);
    const bool is_chat = chats && has_messages(fields, singly ? "completion" : "chosen");
    refuse_unread_fields(fields, is_chat);
    if (is_chat && chat_template == nullptr) {
      chat_template = template_for(fields, chats);
    }
    PreferenceRow row = is_chat ? (singly ? take_single_chat(fields, *chat_template)
                                          : take_pair_of_chats(fields, *chat_template))
                                : (singly ? take_single(fields) : take_pair(fields));
    row.margin = singly ? std::nullopt : margin_of(fields);
    return row;
  };
  FieldUse use;
  result.files = read_records(
      words, format, key, "preferences", kExample, [&](const RecordFields& fields, size_t file) {
        PreferenceRow row = take_row(fields);
        use.observe(fields.ordered(), [&](const nlohmann::ordered_json& without) {
          return take_row({without, without.dump(), fields.place(), fields.line(), kExample}) ==
                 row;
        });
        row.file = file;
        row.line = fields.line();
        (is_single(fields) ? result.rows : pairs).push_back(std::move(row));
      });
  if (const std::string unused = use.unused(); !unused.empty()) {
    log_info("{}: fields {}", key, unused);
  }
  if (judged == Judged::kSingly) {
    check_answers({result.files, pairs}, key, Judged::kInPairs);
    pairs = taken_apart(std::move(pairs));
  }
  result.rows.insert(result.rows.end(), pairs.begin(), pairs.end());
  if (result.rows.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{}: the files contain no rows ({} files)", key, result.files.size()),
        R"(write {"prompt": "...", "chosen": "...", "rejected": "..."} on each line)");
  }
  check_answers(result, key, judged);
  return result;
}

}  // namespace lockstep::data
