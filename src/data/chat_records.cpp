// Converts records to chats. Supports the field names of common datasets.
#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/json_lines.h"
#include "data/chat.h"

namespace lockstep::data {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail_chat(std::string text, std::string remedy = "") {
  throw Error(ErrorKind::kData, std::move(text), std::move(remedy));
}

const Json* present(const Json& record, const std::string& name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

std::string role_of_sharegpt(const std::string& from, const std::string& place) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kRoles{
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"assistant", "assistant"},
       {"chatgpt", "assistant"},
       {"bot", "assistant"},
       {"bing", "assistant"},
       {"model", "assistant"},
       {"system", "system"},
       {"tool", "tool"},
       {"function", "tool"},
       {"observation", "tool"}}};
  for (const auto& [name, role] : kRoles) {
    if (from == name) {
      return std::string(role);
    }
  }
  fail_chat(
      fmt::format("{}: a message is from \"{}\", which is an unknown role", place, from),
      "the roles are human, gpt, system and tool");
}

Json message_of(const std::string& role, Json content) {
  Json message;
  message["role"] = role;
  message["content"] = std::move(content);
  return message;
}

/// Adds a list of messages, each an object with a role.
void add_messages(
    const Json& list, const std::string& field, const std::string& place, Chat& chat) {
  if (!list.is_array()) {
    fail_chat(
        fmt::format(
            "{}: \"{}\" is of type {}, not a list of messages", place, field, list.type_name()),
        R"(write "messages": [{"role": "user", "content": "..."}, ...])");
  }
  for (const Json& message : list) {
    const Json* role = message.is_object() ? present(message, "role") : nullptr;
    if (role == nullptr || !role->is_string()) {
      fail_chat(
          fmt::format(
              "{}: message {} of \"{}\" has no role", place, chat.messages.size() + 1, field),
          R"(a message is {"role": "user", "content": "..."})");
    }
    add_message(message, place, chat);
  }
}

/// Adds the record's field `system`, which precedes its messages.
void add_system(const Json& record, const std::string& place, Chat& chat) {
  const Json* system = present(record, "system");
  if (system == nullptr || *system == "") {
    return;
  }
  if (!system->is_string()) {
    fail_chat(
        fmt::format("{}: \"system\" is of type {}, not a string", place, system->type_name()),
        "write the system prompt as a JSON string");
  }
  chat.messages.push_back(message_of("system", *system));
}

void check_one_system(const Chat& chat, const Json& record, const std::string& place) {
  if (present(record, "system") != nullptr && chat.messages.size() > 1 &&
      chat.messages[0].value("role", "") == "system" &&
      chat.messages[1].value("role", "") == "system") {
    fail_chat(
        fmt::format("{}: the record has a field \"system\" and a system message", place),
        "remove one of them");
  }
}

void refuse_media(const Json& record, const std::string& place) {
  for (const char* name : {"images", "image", "videos", "audio"}) {
    const Json* value = present(record, name);
    if (value != nullptr && *value != "" && !(value->is_array() && value->empty())) {
      fail_chat(
          fmt::format(
              "{}: the field \"{}\" is not supported: only text is trained on", place, name),
          "remove the rows, or remove the column if the text does not depend on it");
    }
  }
}

void add_sharegpt(const Json& list, const std::string& place, Chat& chat) {
  for (const Json& message : list) {
    const Json* from = message.is_object() ? present(message, "from") : nullptr;
    const Json* value = message.is_object() ? present(message, "value") : nullptr;
    if (from == nullptr || !from->is_string() || value == nullptr) {
      fail_chat(
          fmt::format(
              "{}: message {} of \"conversations\" has no \"from\" or \"value\"",
              place,
              chat.messages.size() + 1),
          R"(a message is {"from": "human", "value": "..."})");
    }
    Json renamed = message_of(role_of_sharegpt(from->get<std::string>(), place), *value);
    for (const auto& [name, field] : message.items()) {
      if (name != "from" && name != "value" && !renamed.contains(name)) {
        renamed[name] = field;
      }
    }
    add_message(std::move(renamed), place, chat);
  }
}

/// Adds a prompt or a completion. It is either a string, which becomes a message of `role`, or a
/// list of messages.
void add_part(
    const Json& part,
    const std::string& field,
    const std::string& role,
    const std::string& place,
    Chat& chat) {
  if (part.is_string()) {
    chat.messages.push_back(message_of(role, part));
  } else {
    add_messages(part, field, place, chat);
  }
}

void add_tools(const Json& record, const std::string& place, Chat& chat) {
  const Json* tools = present(record, "tools");
  if (tools == nullptr) {
    return;
  }
  chat.tools = tools->is_string() ? parse_ordered_json(tools->get<std::string>()) : *tools;
  if (!chat.tools.is_array()) {
    fail_chat(fmt::format("{}: \"tools\" is not a list", place), "use a list of JSON schemas");
  }
  if (chat.tools.empty()) {
    chat.tools = nullptr;
  }
}

/// Converts a message's `weight` or `train`. Returns true if the message has a loss.
bool is_learned(const Json& value, const char* name, const std::string& place, size_t message) {
  const bool is_weight = std::string_view(name) == "weight";
  const bool is_known = is_weight ? value == 0 || value == 1 : value.is_boolean();
  if (!is_known) {
    fail_chat(
        fmt::format("{}: \"{}\" of message {} is {}", place, name, message + 1, value.dump()),
        is_weight ? "the weight of a message must be 0 or 1"
                  : "\"train\" of a message must be true or false");
  }
  return is_weight ? value == 1 : value.get<bool>();
}

void add_template_arguments(const Json& record, const std::string& place, Chat& chat) {
  const Json* given = present(record, "chat_template_kwargs");
  if (given == nullptr) {
    return;
  }
  chat.template_arguments =
      given->is_string() ? parse_ordered_json(given->get<std::string>()) : *given;
  if (!chat.template_arguments.is_object()) {
    fail_chat(
        fmt::format("{}: \"chat_template_kwargs\" is not an object", place),
        R"(write "chat_template_kwargs": {"enable_thinking": false})");
  }
}

}  // namespace

void read_template_fields(const Json& record, const std::string& place, Chat& chat) {
  add_tools(record, place, chat);
  add_template_arguments(record, place, chat);
}

void add_message(Json message, const std::string& place, Chat& chat) {
  bool learned = true;
  for (const char* name : {"weight", "train"}) {
    if (const Json* value = present(message, name)) {
      learned = is_learned(*value, name, place, chat.messages.size()) && learned;
    }
    message.erase(name);
  }
  if (!learned) {
    chat.not_learned.push_back(chat.messages.size());
  }
  chat.messages.push_back(std::move(message));
}

Chat read_chat(const Json& record, const std::string& messages_field, const std::string& place) {
  Chat chat;
  const Json* sharegpt = present(record, "conversations");
  const Json *prompt = present(record, "prompt"), *completion = present(record, "completion");
  refuse_media(record, place);
  add_system(record, place, chat);
  if (const Json* messages = present(record, messages_field)) {
    add_messages(*messages, messages_field, place, chat);
  } else if (sharegpt != nullptr && sharegpt->is_array()) {
    const bool has_roles =
        !sharegpt->empty() && sharegpt->front().is_object() && sharegpt->front().contains("role");
    if (has_roles) {
      add_messages(*sharegpt, "conversations", place, chat);
    } else {
      add_sharegpt(*sharegpt, place, chat);
    }
  } else if (prompt != nullptr && completion != nullptr) {
    add_part(*prompt, "prompt", "user", place, chat);
    chat.first_learned = chat.messages.size();
    add_part(*completion, "completion", "assistant", place, chat);
  } else {
    std::vector<std::string> names;
    for (const auto& [name, value] : record.items()) {
      names.push_back(name);
    }
    fail_chat(
        fmt::format(
            "{} has no field \"{}\", no conversations, and no prompt with a completion. Its "
            "fields: {}",
            place,
            messages_field,
            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
        "set the field with the messages: data.messages_field=...");
  }
  check_one_system(chat, record, place);
  read_template_fields(record, place, chat);
  return chat;
}

}  // namespace lockstep::data
