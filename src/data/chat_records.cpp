// Records as chats, by the names that data sets have for them.
#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"
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
      fmt::format("{}: a message is from \"{}\", which is no role known", place, from),
      "it is human, gpt, system or tool");
}

Json message_of(const std::string& role, Json content) {
  Json message;
  message["role"] = role;
  message["content"] = std::move(content);
  return message;
}

/// A list of messages, each an object with a role.
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
    chat.messages.push_back(message);
  }
}

void add_sharegpt(const Json& list, const Json& record, const std::string& place, Chat& chat) {
  if (const Json* system = present(record, "system");
      system != nullptr && system->is_string() && !system->get<std::string>().empty()) {
    chat.messages.push_back(message_of("system", *system));
  }
  for (const Json& message : list) {
    const Json* from = message.is_object() ? present(message, "from") : nullptr;
    const Json* value = message.is_object() ? present(message, "value") : nullptr;
    if (from == nullptr || !from->is_string() || value == nullptr) {
      fail_chat(
          fmt::format(
              "{}: message {} of \"conversations\" has no from and value",
              place,
              chat.messages.size() + 1),
          R"(a message is {"from": "human", "value": "..."})");
    }
    chat.messages.push_back(message_of(role_of_sharegpt(from->get<std::string>(), place), *value));
  }
}

/// A prompt or a completion: a text of `role`, or messages.
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
  chat.tools = tools->is_string() ? Json::parse(tools->get<std::string>(), nullptr, false) : *tools;
  if (!chat.tools.is_array()) {
    fail_chat(fmt::format("{}: \"tools\" is no list", place), "give a list of JSON schemas");
  }
  if (chat.tools.empty()) {
    chat.tools = nullptr;
  }
}

}  // namespace

Chat read_chat(const Json& record, const std::string& messages_field, const std::string& place) {
  Chat chat;
  const Json* sharegpt = present(record, "conversations");
  const Json *prompt = present(record, "prompt"), *completion = present(record, "completion");
  if (const Json* messages = present(record, messages_field)) {
    add_messages(*messages, messages_field, place, chat);
  } else if (sharegpt != nullptr && sharegpt->is_array()) {
    const bool has_roles =
        !sharegpt->empty() && sharegpt->front().is_object() && sharegpt->front().contains("role");
    if (has_roles) {
      add_messages(*sharegpt, "conversations", place, chat);
    } else {
      add_sharegpt(*sharegpt, record, place, chat);
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
            "{} has no field \"{}\", no conversations, and no prompt with a completion. It has: {}",
            place,
            messages_field,
            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
        "name the field of the messages: data.messages_field=...");
  }
  add_tools(record, place, chat);
  return chat;
}

}  // namespace lockstep::data
