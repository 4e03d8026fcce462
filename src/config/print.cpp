// Prints a configuration as YAML.
#include "config/print.h"

#include <algorithm>

#include "base/format.h"
#include "base/redact.h"
#include "config/core/scalar.h"
#include "config/core/schema.h"

namespace lockstep::config {
namespace {

/// Returns true if YAML 1.1 and 1.2 readers parse the unquoted text as this same string.
bool is_plain(const std::string& text) {
  static constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+";
  const bool letters = !text.empty() && text.find_first_not_of(kLetters) == std::string::npos;
  const bool first = letters && text[0] != '-' && text[0] != '.' && text[0] != '+';
  if (!first || is_null_word(text) || (to_bool(text) && text.size() > 1)) {
    return false;
  }
  const bool word = (text[0] | 0x20) >= 'a' && (text[0] | 0x20) <= 'z';
  return word && text.size() > 1 && !to_double(text);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (letter == '\n') {
      result += "\\n";
    } else if (letter == '\t') {
      result += "\\t";
    } else if (code < 0x20 || code == 0x7f) {
      result += fmt::format("\\x{:02x}", code);
    } else {
      result += letter;
    }
  }
  return result + '"';
}

/// Escapes "${" as \${ and doubles preceding backslashes so that the text is not an interpolation.
std::string escaped(const std::string& text) {
  std::string result;
  size_t slashes = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{') {
      result.append(slashes + 1, '\\');
    }
    slashes = text[i] == '\\' ? slashes + 1 : 0;
    result += text[i];
  }
  return result;
}

std::string yaml_scalar(const Value& value) {
  if (value.is_null()) {
    return "null";
  }
  if (!value.quoted) {
    return value.text;
  }
  const std::string text = escaped(redacted(value.text, {}));
  return is_plain(text) ? text : quoted(text);
}

std::string yaml_value(const Value& value) {
  if (value.is_map()) {  // map with user-defined names, or a record in a list
    std::string text;
    for (const Entry& entry : value.entries) {
      text += text.empty() ? "" : ", ";
      text += quoted(escaped(entry.name)) + ": " + yaml_value(entry.value);
    }
    return "{" + text + "}";
  }
  if (!value.is_list()) {
    return yaml_scalar(value);
  }
  std::string text;
  for (const Value& item : value.items) {
    text += text.empty() ? "" : ", ";
    text += yaml_value(item);
  }
  return "[" + text + "]";
}

struct Writer {
  const Origins& origins;
  bool with_origins = false;
  std::string text = {};

  void write(const Value& map, const std::string& prefix, int indent) {
    for (const Entry& entry : map.entries) {
      const std::string key = prefix + entry.name;
      std::string line = fmt::format("{:{}}{}:", "", indent, entry.name);
      const Key* const known = find_key(key);
      if (entry.value.is_map() && (known == nullptr || known->type != Key::Type::kMap)) {
        text += line + "\n";
        write(entry.value, key + ".", indent + 2);
        continue;
      }
      const auto origin = origins.find(key);
      // A configuration key's name never makes its value secret: `unlearning.question_key` contains
      // a field name.
      const bool secret = (origin != origins.end() && origin->second.secret) ||
                          (known == nullptr && is_secret_name(entry.name));
      line += ' ';
      line += secret ? "\"***\"" : yaml_value(entry.value);
      if (with_origins) {
        const std::string place = origin == origins.end() ? "default" : describe(origin->second);
        line += fmt::format("{:{}}  # {}", "", line.size() < 48 ? 48 - line.size() : 0, place);
      }
      text += line + "\n";
    }
  }
};

}  // namespace

std::string to_yaml(const Config& config, const Origins& origins) {
  Writer writer{.origins = origins};
  writer.write(to_value(config), "", 0);
  return writer.text;
}

std::string print_config(const Resolution& resolution) {
  Writer writer{.origins = resolution.origins, .with_origins = true};
  writer.write(to_value(resolution.config), "", 0);
  return writer.text;
}

}  // namespace lockstep::config
