// Converts values to text: Python's str() and repr(), and tojson.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "jinja/builtins.h"
#include "jinja/python_characters.h"
#include "jinja/value.h"
#include "jinja/work.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

constexpr int kDeepest = 64;

std::string text_of_float(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

/// Returns the repr() of a string. Uses single quotes unless the string contains single but no
/// double quotes.
std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : text::to_code_points(text)) {
    const auto number = static_cast<uint32_t>(c);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      text::append_code_point(out, c);
    } else {
      out += number < 0x100     ? fmt::format("\\x{:02x}", number)
             : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                : fmt::format("\\U{:08x}", number);
    }
  }
  return out + quote;
}

std::string repr_of(const Value& value, int depth);

std::string repr_of_list(const List& list, int depth) {
  if (!list.is_written()) {
    fail(fmt::format(
        "a {} cannot be printed: add | list after it", type_name(Value(make_list({}, list.kind)))));
  }
  const bool is_tuple = list.kind == ListKind::kTuple;
  std::string out(1, is_tuple ? '(' : '[');
  for (size_t i = 0; i < list.items.size(); ++i) {
    out += (i > 0 ? ", " : "") + repr_of(list.items[i], depth + 1);
    check_size(out);
  }
  return out + (is_tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
}

std::string repr_of(const Value& value, int depth) {
  Work::add(4 + (value.is_string() ? std::ssize(value.string()) : 0));
  if (depth > kDeepest) {
    fail(fmt::format("a value is nested deeper than {}", kDeepest));
  }
  if (value.is_string()) {
    return value.is_marked() ? "Markup(" + quoted(value.string()) + ")" : quoted(value.string());
  }
  if (value.is_list()) {
    return repr_of_list(value.list(), depth);
  }
  if (value.is_dict()) {
    if (value.dict().is_loop) {
      return fmt::format(
          "<LoopContext {}/{}>",
          to_text(*value.dict().find("index")),
          to_text(*value.dict().find("length")));
    }
    std::string out = value.dict().is_namespace ? "<Namespace {" : "{";
    for (const auto& [key, entry] : value.dict().entries) {
      out += (out.back() == '{' ? "" : ", ") + repr_of(key, depth + 1) + ": " +
             repr_of(entry, depth + 1);
      check_size(out);
    }
    return out + (value.dict().is_namespace ? "}>" : "}");
  }
  if (value.is_undefined()) {
    return "Undefined";
  }
  return to_text(value);
}

/// Returns a JSON string. With `ensures_ascii`, non-ASCII code points become UTF-16 \u escapes.
std::string json_string(const std::string& text, bool ensures_ascii) {
  std::string out = "\"";
  for (const char32_t c : text::to_code_points(text)) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20 || (ensures_ascii && c > 0x7e && c < 0x10000)) {
          out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
        } else if (ensures_ascii && c >= 0x10000) {
          const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
        } else {
          text::append_code_point(out, c);
        }
    }
  }
  return out + '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  std::string write(const Value& value, int depth = 0) {
    Work::add(4 + (value.is_string() ? std::ssize(value.string()) : 0));
    if (depth > kDeepest) {
      fail(fmt::format("a value is nested deeper than {}", kDeepest));
    }
    if (value.is_string()) {
      std::string text = json_string(value.string(), style_.ensures_ascii);
      bytes_ += std::ssize(text);
      if (bytes_ > kMostBytes) {
        fail("tojson: a string of more than 64 MiB");
      }
      return text;
    }
    if (value.is_none()) {
      return "null";
    }
    if (value.is_bool()) {
      return value.integer() != 0 ? "true" : "false";
    }
    if (value.is_float() && !std::isfinite(value.number())) {
      return std::isnan(value.number()) ? "NaN" : value.number() > 0 ? "Infinity" : "-Infinity";
    }
    if (value.is_number()) {
      return to_text(value);
    }
    std::vector<std::string> parts;
    if (value.is_list() && value.list().is_written()) {
      for (const Value& item : value.list().items) {
        parts.push_back(write(item, depth + 1));
      }
      return wrapped('[', parts, ']', depth);
    }
    if (!value.is_dict() || value.dict().is_namespace) {
      fail(fmt::format("tojson does not support {}", type_name(value)));
    }
    auto entries = value.dict().entries;
    if (style_.sorts_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return less(a.first, b.first);
      });
    }
    for (const auto& [key, entry] : entries) {
      if (key.is_list()) {
        fail(fmt::format(
            "tojson: {} is not a valid key; its type is {}", to_repr(key), type_name(key)));
      }
      const std::string written = write(key, depth + 1);
      parts.push_back(
          (key.is_string() ? written : '"' + written + '"') + style_.behind_key +
          write(entry, depth + 1));
    }
    return wrapped('{', parts, '}', depth);
  }

 private:
  std::string wrapped(
      char open, const std::vector<std::string>& parts, char close, int depth) const {
    Work::add(
        (std::ssize(parts) + 1) *
        ((depth + 1) * std::ssize(style_.indent) + std::ssize(style_.between_items) +
         std::ssize(style_.behind_key)));
    if (!style_.has_lines || parts.empty()) {
      return fmt::format("{}{}{}", open, fmt::join(parts, style_.between_items), close);
    }
    const auto line = [&](int at) {
      std::string all = "\n";
      for (int i = 0; i < at; ++i) {
        all += style_.indent;
      }
      return all;
    };
    return open + line(depth + 1) +
           fmt::format("{}", fmt::join(parts, style_.between_items + line(depth + 1))) +
           line(depth) + close;
  }

  const JsonStyle& style_;
  int64_t bytes_ = 0;  // of all strings
};

}  // namespace

std::string to_text(const Value& value) {
  if (value.is_string()) {
    return value.string();
  }
  if (value.is_undefined()) {
    return "";
  }
  if (value.is_none()) {
    return "None";
  }
  if (value.is_bool()) {
    return value.integer() != 0 ? "True" : "False";
  }
  if (value.is_integer()) {
    return std::to_string(value.integer());
  }
  if (value.is_float()) {
    return text_of_float(value.number());
  }
  if (value.is_callable()) {
    fail("a function cannot be printed: call it, with ()");
  }
  return repr_of(value, 0);
}

std::string to_repr(const Value& value) {
  return repr_of(value, 0);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  return JsonWriter(style).write(value);
}

}  // namespace lockstep::jinja
