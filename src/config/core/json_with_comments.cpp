// Parser for JSON with comments.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "config/core/yaml.h"

namespace lockstep::config {
namespace {

/// JSON parser that records line numbers. Strict, but accepts comments and trailing commas. Nesting
/// is limited to kMaximumDepth.
class JsonReader {
 public:
  JsonReader(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {}

  Value document() {
    skip();
    Value value = element(0);
    skip();
    if (at_ < text_.size()) {
      fail("more text after the end of the value");
    }
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    size_t column = 1;
    for (size_t i = std::min(at_, text_.size()); i > 0 && text_[i - 1] != '\n'; --i) {
      ++column;
    }
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{}:{}: invalid JSON (column {}): {}", source_, line_, column, what));
  }

  Origin origin() const {
    return {.source = Origin::Source::kFile, .place = fmt::format("{}:{}", source_, line_)};
  }

  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void skip_to(std::string_view end) {
    const size_t found = text_.find(end, at_);
    const size_t stop = found == std::string_view::npos ? text_.size() : found + end.size();
    for (; at_ < stop; ++at_) {
      line_ += text_[at_] == '\n';
    }
  }

  /// Skips white space and comments: // and # until the end of the line, and /* ... */.
  void skip() {
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '#' || (letter == '/' && peek(1) == '/')) {
        skip_to("\n");
      } else if (letter == '/' && peek(1) == '*') {
        skip_to("*/");
      } else if (letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r') {
        line_ += letter == '\n';
        ++at_;
      } else {
        break;
      }
    }
  }

  Value element(int depth) {
    if (depth > kMaximumDepth) {
      fail(fmt::format("nested deeper than {} levels", kMaximumDepth));
    }
    if (++nodes_ > kMaximumNodes) {
      fail(fmt::format("more than {} values", kMaximumNodes));
    }
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"': {
        const Origin at = origin();
        return Value::scalar(string(), true, at);
      }
      default:
        return word();
    }
  }

  Value object(int depth) {
    Value map = Value::map(origin());
    ++at_;
    for (skip(); peek() != '}'; skip()) {
      if (peek() != '"') {
        fail("expected a name in double quotes, or }");
      }
      std::string name = string();
      if (map.find(name) != nullptr) {
        fail(fmt::format("duplicate name \"{}\" in an object", name));
      }
      skip();
      if (peek() != ':') {
        fail(fmt::format("expected a colon after \"{}\"", name));
      }
      ++at_;
      skip();
      map.entries.push_back({std::move(name), element(depth + 1)});
      separator('}');
    }
    ++at_;
    return map;
  }

  Value array(int depth) {
    Value list = Value::list(origin());
    ++at_;
    for (skip(); peek() != ']'; skip()) {
      list.items.push_back(element(depth + 1));
      separator(']');
    }
    ++at_;
    return list;
  }

  void separator(char end) {
    skip();
    if (peek() == ',') {
      ++at_;
    } else if (peek() != end) {
      fail(fmt::format("expected a comma or {}", end));
    }
  }

  Value word() {
    const size_t begin = at_;
    const std::string_view ends = ",]}:/# \t\r\n\"[{";
    while (at_ < text_.size() && ends.find(text_[at_]) == std::string_view::npos) {
      ++at_;
    }
    std::string text(text_.substr(begin, at_ - begin));
    const ScalarType type = scalar_type(Value::scalar(text));
    const bool plain = text == "null" || text == "true" || text == "false" ||
                       type == ScalarType::kInteger || type == ScalarType::kFloat;
    if (!plain) {
      at_ = begin;
      fail(
          text.empty() ? "expected a value"
                       : fmt::format("'{}' is not a value (strings need double quotes)", text));
    }
    return text == "null" ? Value::null(origin()) : Value::scalar(std::move(text), false, origin());
  }

  unsigned hex4() {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) {
      const char letter = peek();
      const char lower = static_cast<char>(letter | 0x20);
      if (letter >= '0' && letter <= '9') {
        code = code * 16 + static_cast<unsigned>(letter - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + static_cast<unsigned>(lower - 'a' + 10);
      } else {
        fail("expected four hexadecimal digits after \\u");
      }
      ++at_;
    }
    return code;
  }

  void append_code_point(std::string& text) {
    unsigned code = hex4();
    if (code >= 0xd800 && code < 0xdc00 && peek() == '\\' && peek(1) == 'u') {
      at_ += 2;
      const unsigned low = hex4();
      if (low < 0xdc00 || low > 0xdfff) {
        fail("unpaired surrogate");
      }
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xd800 && code < 0xe000) {
      fail("unpaired surrogate");
    }
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += static_cast<char>(0xc0 | (code >> 6));
      text += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      text += static_cast<char>(0xe0 | (code >> 12));
      text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
      text += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      text += static_cast<char>(0xf0 | (code >> 18));
      text += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
      text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
  }

  std::string string() {
    ++at_;
    std::string text;
    while (peek() != '"') {
      const char letter = peek();
      if (at_ >= text_.size() || letter == '\n') {
        fail("unterminated string");
      }
      ++at_;
      if (letter != '\\') {
        text += letter;
        continue;
      }
      static constexpr std::string_view kNames = "\"\\/bfnrt", kLetters = "\"\\/\b\f\n\r\t";
      const char escape = peek();
      ++at_;
      if (const size_t index = kNames.find(escape); index != std::string_view::npos) {
        text += kLetters[index];
      } else if (escape == 'u') {
        append_code_point(text);
      } else {
        fail("invalid escape sequence");
      }
    }
    ++at_;
    return text;
  }

  std::string_view text_;
  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  size_t nodes_ = 0;
};

}  // namespace

Value parse_json_with_comments(std::string_view text, const std::string& source) {
  if (text.size() > kMaximumBytes) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is {} bytes; the maximum size of a configuration is {}",
            source,
            text.size(),
            kMaximumBytes));
  }
  return JsonReader(text, source).document();
}

}  // namespace lockstep::config
