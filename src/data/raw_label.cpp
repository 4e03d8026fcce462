// Parses the labels of tables and JSON.
#include "data/raw_label.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

/// Returns the index of the closing quote of a list item, or nullopt if it is missing.
std::optional<size_t> closing_quote(std::string_view text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == quote) {
      return at;
    }
  }
  return std::nullopt;
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    at += text[at] == '\\' && at + 1 < text.size() ? 1 : 0;
    result += text[at];
  }
  return result;
}

bool is_integer(std::string_view text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  return text.size() > sign &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(sign), text.end(), [](char c) {
           return c >= '0' && c <= '9';
         });
}

/// Returns the items of a list such as "['a', \"b\", 3]". nullopt if the text is not such a list.
std::optional<std::vector<std::string>> items_of_list(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return std::nullopt;
  }
  text = text.substr(1, text.size() - 2);
  std::vector<std::string> items;
  for (size_t at = text.find_first_not_of(" \t\n"); at < text.size();) {
    size_t end = 0;
    if (text[at] == '\'' || text[at] == '"') {
      const auto closing = closing_quote(text, at);
      if (!closing) {
        return std::nullopt;
      }
      items.push_back(unescaped(text.substr(at + 1, *closing - at - 1)));
      end = *closing + 1;
    } else {
      end = std::min(text.find_first_of(" ,\t\n", at), text.size());
      items.emplace_back(text.substr(at, end - at));
      if (!is_integer(items.back())) {
        return std::nullopt;
      }
    }
    at = std::min(text.find_first_not_of(" \t\n", end), text.size());
    if (at < text.size() && text[at] == ',') {
      at = text.find_first_not_of(" \t\n", at + 1);
    } else if (at < text.size()) {
      return std::nullopt;
    }
  }
  return items;
}

/// Returns one label. nullopt for null and for an empty string.
std::optional<std::string> word_of_json(
    const nlohmann::json& value, const std::string& place, const std::string& field) {
  if (value.is_null()) {
    return std::nullopt;
  }
  if (value.is_string()) {
    return trimmed(value.get_ref<const std::string&>());
  }
  if (value.is_number()) {
    return value.dump();
  }
  if (value.is_boolean()) {
    return value.get<bool>() ? "True" : "False";
  }
  throw Error(
      ErrorKind::kData,
      fmt::format("{}: the label \"{}\" contains an {}", place, field, value.type_name()),
      "a label must be a string, a number, or a list of these");
}

}  // namespace

std::optional<std::string> trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) {
    return std::nullopt;
  }
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

std::optional<RawLabel> label_of_text(std::string_view text, std::string_view delimiter) {
  if (!delimiter.empty()) {
    RawLabel label{{}, true};
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find(delimiter, at), text.size());
      if (auto word = trimmed(text.substr(at, end - at))) {
        label.words.push_back(std::move(*word));
      }
      at = end + delimiter.size();
    }
    return label;
  }
  auto word = trimmed(text);
  if (!word) {
    return std::nullopt;
  }
  if (auto items = items_of_list(*word)) {
    return RawLabel{std::move(*items), true};
  }
  return RawLabel{{std::move(*word)}, false};
}

std::optional<RawLabel> label_of_json(
    const nlohmann::json& value,
    std::string_view delimiter,
    const std::string& place,
    const std::string& field) {
  if (value.is_array()) {
    RawLabel label{{}, true};
    for (const nlohmann::json& item : value) {
      if (auto word = word_of_json(item, place, field)) {
        label.words.push_back(std::move(*word));
      }
    }
    return label;
  }
  auto word = word_of_json(value, place, field);
  if (!delimiter.empty()) {
    return label_of_text(word.value_or(""), delimiter);
  }
  return word ? std::optional(RawLabel{{std::move(*word)}, false}) : std::nullopt;
}

}  // namespace lockstep::data
