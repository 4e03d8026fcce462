// Renders chats and finds the spans that have a loss.
#include "data/chat.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/json_lines.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace lockstep::data {
namespace {

using Json = nlohmann::ordered_json;
using jinja::TextSpan;

constexpr std::string_view kWhite = " \t\r\n";

std::string_view without_white_end(std::string_view text) {
  const size_t last = text.find_last_not_of(kWhite);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::string_view without_white_ends(std::string_view text) {
  const size_t first = text.find_first_not_of(kWhite);
  return first == std::string_view::npos ? "" : without_white_end(text.substr(first));
}

bool is_assistant(const Json& message) {
  const auto role = message.find("role");
  return role != message.end() && *role == "assistant";
}

/// Returns a message in the form in which transformers passes it to a template: without keys whose
/// value is null, and with its reasoning under each name that templates use.
Json normalized(Json message) {
  for (auto entry = message.begin(); entry != message.end();) {
    entry = entry->is_null() ? message.erase(entry) : std::next(entry);
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found != message.end() && !found->is_null()) {
      Json more;
      more["thinking"] = *found;
      more.update(message);
      more["reasoning_content"] = *found;
      return more;
    }
  }
  return message;
}

/// Returns the text of a message. If it has several parts, returns the last one.
std::string content_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    return "";
  }
  if (content->is_array() && !content->empty() && content->back().is_object()) {
    return content->back().value("text", "");
  }
  return content->is_string() ? content->get<std::string>() : "";
}

size_t common_beginning(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

/// Returns the special tokens by name, such as "bos_token".
Json tokens_of(const std::map<std::string, std::string>& files) {
  Json tokens = Json::object();
  for (const std::string& name : text::special_token_files({"", files})) {
    const auto file = files.find(name);
    const Json parsed = file == files.end() ? Json() : parse_ordered_json(file->second);
    if (!parsed.is_object()) {
      continue;
    }
    for (const auto& [key, value] : parsed.items()) {
      const Json& token = value.is_object() && value.contains("content") ? value["content"] : value;
      if (key.ends_with("_token") && token.is_string() && !tokens.contains(key)) {
        tokens[key] = token;
      }
    }
  }
  return tokens;
}

std::optional<std::string> template_in(const std::map<std::string, std::string>& files) {
  const auto file = files.find("tokenizer_config.json");
  const Json parsed = file == files.end() ? Json() : parse_ordered_json(file->second);
  if (!parsed.is_object() || !parsed.contains("chat_template")) {
    return std::nullopt;
  }
  const Json& found = parsed["chat_template"];
  if (found.is_string()) {
    return found.get<std::string>();
  }
  for (const Json& named : found.is_array() ? found : Json::array()) {
    if (named.is_object() && named.value("name", "") == "default") {
      return named.value("template", "");
    }
  }
  return std::nullopt;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string place, Json tokens)
    : template_(source, std::move(place)),
      tokens_(std::move(tokens)) {
  Hasher hasher;
  hasher.update_field(source);
  hasher.update_field(tokens_.dump());
  fingerprint_ = hasher.hex();
}

std::shared_ptr<const ChatTemplate> ChatTemplate::of(const text::Tokenizer& tokenizer) {
  const auto files = tokenizer.files();
  if (const auto file = files.find("chat_template.jinja"); file != files.end()) {
    return std::make_shared<ChatTemplate>(file->second, "chat_template.jinja", tokens_of(files));
  }
  const auto source = template_in(files);
  return source ? std::make_shared<ChatTemplate>(
                      *source, "chat_template of tokenizer_config.json", tokens_of(files))
                : nullptr;
}

std::optional<std::string> ChatTemplate::source_of(const text::Tokenizer& tokenizer) {
  const auto files = tokenizer.files();
  const auto file = files.find("chat_template.jinja");
  return file == files.end() ? template_in(files) : file->second;
}

std::shared_ptr<const ChatTemplate> ChatTemplate::read(
    const std::filesystem::path& path, const text::Tokenizer& tokenizer) {
  return std::make_shared<ChatTemplate>(
      read_file(path, ErrorKind::kConfig, kLongestJson),
      path.string(),
      tokens_of(tokenizer.files()));
}

jinja::Rendering ChatTemplate::render_first(const Chat& chat, size_t messages, Asks asks) const {
  Json variables = tokens_;
  if (chat.template_arguments.is_object()) {
    variables.update(chat.template_arguments);
  }
  Json& given = variables["messages"] = Json::array();
  for (size_t i = 0; i < messages; ++i) {
    given.push_back(normalized(chat.messages[i]));
  }
  variables["tools"] = chat.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = asks == Asks::kYes;
  return template_.render(variables);
}

std::string ChatTemplate::prompt(const Chat& chat) const {
  return render_first(chat, chat.messages.size(), Asks::kYes).text;
}

std::string ChatTemplate::whole(const Chat& chat) const {
  return render_first(chat, chat.messages.size(), Asks::kNo).text;
}

ChatText ChatTemplate::render(const Chat& chat, ChatLoss loss) const {
  jinja::Rendering whole = render_first(chat, chat.messages.size(), Asks::kNo);
  if (loss == ChatLoss::kAll) {
    return {whole.text, without({{0, whole.text.size()}}, chat, whole.text)};
  }
  std::vector<TextSpan> spans =
      template_.marks_generation() ? marked(chat, whole) : added(chat, whole.text);
  std::erase_if(spans, [](const TextSpan& span) { return span.begin >= span.end; });
  if (spans.empty()) {
    const bool answers = std::ranges::any_of(chat.messages, is_assistant);
    throw Error(
        ErrorKind::kData,
        answers ? "the chat template renders no text of the assistant"
                : "there is no assistant message, so the row has no loss",
        answers ? "fix the template, or use another one: data.chat_template=FILE"
                : "remove the row, or train on all messages with data.chat_loss=all");
  }
  spans = without(std::move(spans), chat, whole.text);
  if (loss == ChatLoss::kLast && !spans.empty()) {
    spans.erase(spans.begin(), spans.end() - 1);
  }
  return {std::move(whole.text), std::move(spans)};
}

std::vector<TextSpan> ChatTemplate::without(
    std::vector<TextSpan> spans, const Chat& chat, const std::string& whole) const {
  for (const size_t message : chat.not_learned) {
    const size_t from =
        message == 0 ? 0 : common_beginning(render_first(chat, message, Asks::kNo).text, whole);
    const size_t to =
        message + 1 == chat.messages.size()
            ? whole.size()
            : common_beginning(render_first(chat, message + 1, Asks::kNo).text, whole);
    std::vector<TextSpan> left;
    for (const TextSpan& span : spans) {
      left.push_back({span.begin, std::min(span.end, from)});
      left.push_back({std::max(span.begin, to), span.end});
    }
    std::erase_if(left, [](const TextSpan& span) { return span.begin >= span.end; });
    spans = std::move(left);
  }
  return spans;
}

std::vector<TextSpan> ChatTemplate::marked(const Chat& chat, const jinja::Rendering& whole) const {
  std::vector<TextSpan> spans = whole.generated;
  if (chat.first_learned > 0) {
    const std::string before = render_first(chat, chat.first_learned, Asks::kNo).text;
    const size_t learned_from = common_beginning(before, whole.text);
    std::erase_if(spans, [&](const TextSpan& span) { return span.end <= learned_from; });
  }
  return spans;
}

std::vector<TextSpan> ChatTemplate::added(const Chat& chat, const std::string& whole) const {
  std::vector<TextSpan> spans;
  for (size_t i = chat.first_learned; i < chat.messages.size(); ++i) {
    if (is_assistant(chat.messages[i])) {
      spans.push_back(added_by(chat, i, whole));
    }
  }
  return spans;
}

TextSpan ChatTemplate::added_by(const Chat& chat, size_t message, const std::string& whole) const {
  const auto refuse = [&]() {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the text of assistant message {} cannot be located: with this message, the template "
            "renders the preceding messages differently",
            message + 1),
        "use a template that marks it with {% generation %} (data.chat_template=FILE), or train "
        "only on the last message with data.chat_loss=last, or on everything with "
        "data.chat_loss=all");
  };
  // Some templates add more to a generation prompt than to a finished message (an open <think>), so
  // the message begins where both texts differ.
  const size_t before = message == 0 ? 0 : render_first(chat, message, Asks::kNo).text.size();
  const size_t begin = common_beginning(render_first(chat, message, Asks::kYes).text, whole);
  if (begin < before) {
    refuse();
  }
  const bool is_last = message + 1 == chat.messages.size();
  const std::string up_to = is_last ? whole : render_first(chat, message + 1, Asks::kNo).text;
  const std::string content = content_of(chat.messages[message]);
  const std::string said(without_white_ends(content));
  size_t end = up_to.size();
  if (!whole.starts_with(up_to)) {
    // The full rendering omits parts of earlier messages (their reasoning).
    const size_t at = up_to.rfind(said);
    const std::string closed(
        without_white_end(std::string_view(up_to).substr(std::min(at, up_to.size()))));
    const size_t found =
        said.empty() || at == std::string::npos ? std::string::npos : whole.find(closed, begin);
    if (found == std::string::npos) {
      refuse();
    }
    return {begin, found + closed.size()};
  }
  const std::string_view span =
      without_white_end(std::string_view(whole).substr(begin, end - begin));
  if (!span.ends_with(said)) {  // white space after the end marker has no loss
    end = begin + span.size();
  }
  return {begin, end};
}

std::string ChatTemplate::end_of_turn() const {
  Chat chat;
  chat.messages = Json::array(
      {{{"role", "user"}, {"content", "question"}},
       {{"role", "assistant"}, {"content", "answer"}}});
  const std::string text = render_first(chat, 2, Asks::kNo).text;
  const size_t at = text.rfind("answer");
  return at == std::string::npos
             ? ""
             : std::string(without_white_ends(std::string_view(text).substr(at + 6)));
}

std::optional<int64_t> end_of_turn_token(const text::Tokenizer& tokenizer) {
  const auto chats = ChatTemplate::of(tokenizer);
  if (chats == nullptr) {
    return std::nullopt;
  }
  const std::vector<int32_t> end = tokenizer.encode(
      chats->end_of_turn(), text::SpecialTokens::kRecognise, text::Template::kOmit);
  return !end.empty() && tokenizer.is_special(end.front()) ? std::optional<int64_t>(end.front())
                                                           : std::nullopt;
}

}  // namespace lockstep::data
