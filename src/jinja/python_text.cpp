// Values as Python writes them.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "jinja/value.h"
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

/// repr() of a string: in single quotes, unless it has some and no double ones.
std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string repr_of(const Value& value, int depth);

std::string repr_of_list(const List& list, int depth) {
  std::string out(1, list.is_tuple ? '(' : '[');
  for (size_t i = 0; i < list.items.size(); ++i) {
    out += (i > 0 ? ", " : "") + repr_of(list.items[i], depth + 1);
  }
  return out + (list.is_tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
}

std::string repr_of(const Value& value, int depth) {
  if (depth > kDeepest) {
    fail(fmt::format("a value is nested deeper than {}", kDeepest));
  }
  if (value.is_string()) {
    return quoted(value.string());
  }
  if (value.is_list()) {
    return repr_of_list(value.list(), depth);
  }
  if (value.is_dict()) {
    std::string out = value.dict().is_namespace ? "<Namespace {" : "{";
    for (const auto& [key, entry] : value.dict().entries) {
      out += (out.back() == '{' ? "" : ", ") + repr_of(key, depth + 1) + ": " +
             repr_of(entry, depth + 1);
    }
    return out + (value.dict().is_namespace ? "}>" : "}");
  }
  if (value.is_undefined()) {
    return "Undefined";
  }
  return to_text(value);
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
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
        out += static_cast<unsigned char>(c) < 0x20
                   ? fmt::format("\\u{:04x}", static_cast<unsigned char>(c))
                   : std::string(1, c);
    }
  }
  return out + '"';
}

class JsonWriter {
 public:
  JsonWriter(int64_t indent, bool sort_keys) : indent_(indent), sort_keys_(sort_keys) {}

  std::string write(const Value& value, int depth = 0) const {
    if (depth > kDeepest) {
      fail(fmt::format("a value is nested deeper than {}", kDeepest));
    }
    if (value.is_string()) {
      return json_string(value.string());
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
    if (value.is_list()) {
      for (const Value& item : value.list().items) {
        parts.push_back(write(item, depth + 1));
      }
      return wrapped('[', parts, ']', depth);
    }
    if (!value.is_dict() || value.dict().is_namespace) {
      fail(fmt::format("tojson cannot write {}", type_name(value)));
    }
    auto entries = value.dict().entries;
    if (sort_keys_) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return less(a.first, b.first);
      });
    }
    for (const auto& [key, entry] : entries) {
      const std::string name =
          key.is_string() ? json_string(key.string()) : '"' + write(key, depth + 1) + '"';
      parts.push_back(name + ": " + write(entry, depth + 1));
    }
    return wrapped('{', parts, '}', depth);
  }

 private:
  std::string wrapped(
      char open, const std::vector<std::string>& parts, char close, int depth) const {
    if (indent_ < 0 || parts.empty()) {
      return fmt::format("{}{}{}", open, fmt::join(parts, ", "), close);
    }
    const auto line = [&](int at) {
      return "\n" + std::string(static_cast<size_t>(indent_ * at), ' ');
    };
    return open + line(depth + 1) + fmt::format("{}", fmt::join(parts, "," + line(depth + 1))) +
           line(depth) + close;
  }

  int64_t indent_;
  bool sort_keys_;
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
  return value.is_callable() ? "<function>" : repr_of(value, 0);
}

std::string to_repr(const Value& value) {
  return repr_of(value, 0);
}

std::string to_json(const Value& value, int64_t indent, bool sort_keys) {
  return JsonWriter(std::min<int64_t>(indent, 32), sort_keys).write(value);
}

}  // namespace lockstep::jinja
