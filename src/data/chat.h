// Chats, and the templates that render them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/options.h"
#include "jinja/template.h"

namespace lockstep::text {
class Tokenizer;
}

namespace lockstep::data {

struct Chat {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;               // null: none
  nlohmann::ordered_json template_arguments;  // additional variables of the template; null: none
  size_t first_learned = 0;                   // messages before this one are a prompt, without loss
  std::vector<size_t> not_learned;            // indices of messages without loss, ascending
};

/// Rendered chat, and the spans of its text that have a loss, in order.
struct ChatText {
  std::string text;
  std::vector<jinja::TextSpan> learned;
};

/// Reads a chat from a record. The chat is in the field `messages_field` (with role and content),
/// in ShareGPT's `conversations` (with from and value; optionally `system`), or in prompt and
/// completion (strings or lists of messages). `tools` is optional. Throws Error (data) with `place`
/// if there are no such fields or a message is invalid.
Chat read_chat(
    const nlohmann::ordered_json& record,
    const std::string& messages_field,
    const std::string& place);

/// Reads a record's `tools` and `chat_template_kwargs` into `chat`. Throws Error (data) with
/// `place` if one of them has the wrong type.
void read_template_fields(
    const nlohmann::ordered_json& record, const std::string& place, Chat& chat);
/// Appends a message to `chat`. The keys `weight` (OpenAI: 0 or 1) and `train` (Axolotl: true or
/// false) are removed from the message and determine whether it has a loss. Throws Error (data)
/// with `place` if one of them has another value.
void add_message(nlohmann::ordered_json message, const std::string& place, Chat& chat);

/// Chat template of a tokenizer or a file. Immutable and thread-safe.
class ChatTemplate {
 public:
  /// `tokens` contains bos_token, eos_token and other variables of the template.
  ChatTemplate(std::string_view source, std::string place, nlohmann::ordered_json tokens);
  /// Returns the tokenizer's template: chat_template.jinja, otherwise `chat_template` of
  /// tokenizer_config.json. If the latter has several templates, uses the one named "default".
  /// Returns null if there is none.
  static std::shared_ptr<const ChatTemplate> of(const text::Tokenizer& tokenizer);
  /// Returns the source of that template, or nullopt if the tokenizer has none.
  static std::optional<std::string> source_of(const text::Tokenizer& tokenizer);
  /// Reads a template from a file. It uses the tokenizer's special tokens.
  static std::shared_ptr<const ChatTemplate> read(
      const std::filesystem::path& path, const text::Tokenizer& tokenizer);

  /// Renders all messages, followed by the generation prompt.
  std::string prompt(const Chat& chat) const;
  /// Renders all messages without a generation prompt.
  std::string whole(const Chat& chat) const;
  /// Renders the chat and returns its spans with a loss. The template can mark them with {%
  /// generation %}. Otherwise, they are the text that each assistant message adds to the generation
  /// prompt, including its end marker. Throws Error (data) if there is no assistant message, or if
  /// the text before a message is not its generation prompt.
  ChatText render(const Chat& chat, ChatLoss loss) const;
  /// Returns the end marker of an assistant message, without surrounding white space. May be empty.
  std::string end_of_turn() const;
  /// Returns a hash that changes whenever a rendered text could change.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  enum class Asks { kNo, kYes };
  jinja::Rendering render_first(const Chat& chat, size_t messages, Asks asks) const;
  std::vector<jinja::TextSpan> without(
      std::vector<jinja::TextSpan> spans, const Chat& chat, const std::string& whole) const;
  std::vector<jinja::TextSpan> marked(const Chat& chat, const jinja::Rendering& whole) const;
  std::vector<jinja::TextSpan> added(const Chat& chat, const std::string& whole) const;
  jinja::TextSpan added_by(const Chat& chat, size_t message, const std::string& whole) const;

  jinja::Template template_;
  nlohmann::ordered_json tokens_;
  std::string fingerprint_;
};

/// Returns the special token with which the tokenizer's chat template ends an assistant message;
/// nullopt if there is no template, or if it ends messages otherwise.
std::optional<int64_t> end_of_turn_token(const text::Tokenizer& tokenizer);

}  // namespace lockstep::data
