// Generates --help and the JSON schema.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "config/command_line.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"
#include "config/print.h"

namespace lockstep::config {
namespace {

constexpr size_t kWidth = 100;

/// Wraps text. Continuation lines are indented to column `indent`.
std::string wrapped(const std::string& text, size_t indent) {
  std::string result;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const size_t size = end - at;
    if (column > indent && column + 1 + size > kWidth) {
      result += fmt::format("\n{:{}}", "", indent);
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += text.substr(at, size);
    column += size;
    at = end + 1;
  }
  return result;
}

std::string entry(const std::string& name, const std::string& text) {
  constexpr size_t kIndent = 38;
  std::string line = fmt::format("  {}", name);
  if (line.size() < kIndent - 1) {
    line.resize(kIndent, ' ');
  } else {
    line += fmt::format("\n{:{}}", "", kIndent);
  }
  return line + wrapped(text, kIndent) + "\n";
}

std::string default_text(const Key& key) {
  if (key.default_value.is_null()) {
    return "null";
  }
  return key.default_value.is_scalar() && key.default_value.text.empty()
             ? "empty"
             : to_text(key.default_value);
}

/// Returns the type of a key as shown by --help: "int", "list of strings", "one of a, b".
std::string type_name(const Key& key) {
  switch (key.type) {
    case Key::Type::kSection:
      return "map";
    case Key::Type::kBool:
      return "bool";
    case Key::Type::kInteger:
      return "int";
    case Key::Type::kNumber:
      return "float";
    case Key::Type::kText:
      return key.choices.empty() ? "string"
                                 : fmt::format("one of {}", fmt::join(key.choices, ", "));
    case Key::Type::kList:
      return "list of strings";
    case Key::Type::kMap:
      return "map of floats";
    case Key::Type::kRecords:
      return "list of maps";
  }
  return "";
}

nlohmann::ordered_json schema_of(const Key& key) {
  using json = nlohmann::ordered_json;
  json schema;
  const auto type = [&](const char* name) {
    return key.optional ? json::array({name, "null"}) : json(name);
  };
  switch (key.type) {
    case Key::Type::kSection:
      schema["type"] = "object";
      schema["additionalProperties"] = false;
      break;
    case Key::Type::kBool:
      schema["type"] = type("boolean");
      break;
    case Key::Type::kInteger:
      schema["type"] = type("integer");
      break;
    case Key::Type::kNumber:
      schema["type"] = type("number");
      break;
    case Key::Type::kText:
      schema["type"] = type("string");
      break;
    case Key::Type::kList:
      schema["type"] = json::array({"array", "string"});
      schema["items"] = {{"type", "string"}};
      break;
    case Key::Type::kMap:
      schema["type"] = "object";
      schema["additionalProperties"] = {{"type", "number"}};
      break;
    case Key::Type::kRecords:
      schema["type"] = "array";
      schema["items"] = {{"type", "object"}};
      break;
  }
  if (!key.choices.empty()) {
    schema["enum"] = key.choices;
    if (key.optional) {
      schema["enum"].push_back(nullptr);
    }
  }
  schema["description"] = key.help;
  if (key.type != Key::Type::kSection) {
    schema["default"] = nlohmann::ordered_json::parse(to_json_text(key.default_value));
  }
  return schema;
}

}  // namespace

std::string flags_help(const ResolveOptions& options) {
  std::string text = "Flags\n";
  for (const Flag& flag : options.flags) {
    const char* value = flag.kind == Flag::Kind::kSwitch ? "" : " VALUE";
    const std::string meaning =
        flag.key.empty() ? flag.help : fmt::format("{} (the key {})", flag.help, flag.key);
    text += entry("--" + flag_name(flag.name) + value, meaning);
  }
  return text;
}

std::string help(const ResolveOptions& options) {
  std::string text = fmt::format(
      "lockstep {} [-c file.yaml] [key=value | --key value]...\n\n"
      "Keys of training may be given without their section: learning_rate=1e-4, --learning_rate "
      "1e-4.\n\n{}",
      options.command,
      flags_help(options));
  text +=
      entry("-c, --config FILE", "Configuration file, YAML or JSON; may contain a defaults list");
  text += entry("--config-path DIR", "Folder of the configuration tree; default: conf");
  text += entry("--config-name NAME", "Main file of the configuration tree; default: config");
  text += entry("--config-dir DIR", "Additional folder with configuration groups");
  text += entry("--config_file FILE", "Accelerate configuration file. Other settings override it");
  text += entry("--allow-unknown-config", "Ignore unknown keys with a warning");
  text += entry("-h, --help", "Show this help");
  for (const Key& key : all_keys()) {
    if (key.type == Key::Type::kSection) {
      text += fmt::format("\n{}: {}\n", key.name, key.help);
    } else {
      text += entry(
          key.name,
          fmt::format(
              "{}. {}{}; default: {}",
              key.help,
              type_name(key),
              key.optional ? " or null" : "",
              default_text(key)));
    }
  }
  return text;
}

std::string json_schema() {
  using json = nlohmann::ordered_json;
  json root = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "Lockstep configuration"},
      {"type", "object"},
      {"properties", json::object()}};
  for (const Key& key : all_keys()) {
    json* parent = &root;
    const Path path = split_path(key.name);
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      parent = &(*parent)["properties"][path[i]];
    }
    (*parent)["properties"][path.back()] = schema_of(key);
  }
  return root.dump(2) + "\n";
}

}  // namespace lockstep::config
