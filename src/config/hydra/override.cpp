// Parser for Hydra overrides.
#include "config/hydra/override.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "config/core/yaml.h"

namespace lockstep::config {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_space(char c) {
  return c == ' ' || c == '\t';
}
bool is_id(char c) {
  return is_letter(c) || is_digit(c) || c == '_' || c == '-';
}

constexpr std::string_view kSweepReason = "sweeps over several values are not supported";
constexpr std::string_view kSweepRemedy =
    "give one value; write a list as key=[a,b], and quote a comma in a string or write \\,";

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Override whole() {
    Override result;
    result.text = std::string(text_);
    if (take("~")) {
      result.kind = Override::Kind::kDelete;
    } else if (take("++")) {
      result.kind = Override::Kind::kForceAdd;
    } else if (take("+")) {
      result.kind = Override::Kind::kAdd;
    }
    key(result);
    if (at_ == text_.size()) {
      if (result.kind == Override::Kind::kDelete) {
        return result;
      }
      fail("expected '=' after the key");
    }
    ++at_;  // skips the '=' at which key() stopped
    result.value = value();
    return result;
  }

  Value value() {
    skip_space();
    if (at_ == text_.size()) {
      return Value::scalar("", true);
    }
    Value first = element(0);
    skip_space();
    if (peek() == ',') {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{}: comma-separated values are a sweep; {}", source_, kSweepReason),
          std::string(kSweepRemedy));
    }
    if (at_ < text_.size()) {
      unexpected();
    }
    return first;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kConfig, fmt::format("{}: column {}: {}", source_, at_ + 1, what));
  }
  [[noreturn]] void unexpected() const {
    fail(fmt::format(
        "'{}' must be quoted; write key='...' or put \\ before one of ( ) [ ] {{ }} : "
        "= , and space",
        text_.substr(at_, 1)));
  }

  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(std::string_view word) {
    if (text_.substr(at_).starts_with(word)) {
      at_ += word.size();
      return true;
    }
    return false;
  }
  void skip_space() {
    while (is_space(peek())) {
      ++at_;
    }
  }

  void key(Override& result) {
    const size_t end = std::min(text_.find('=', at_), text_.size());
    const std::string_view whole = text_.substr(at_, end - at_);
    const size_t sign = whole.find('@');
    const std::string_view name = whole.substr(0, sign);
    check_key(name, true);
    if (sign != std::string_view::npos) {
      at_ += sign + 1;
      check_key(whole.substr(sign + 1), false);
      result.package = std::string(whole.substr(sign + 1));
    }
    result.key =
        name.find('[') == std::string_view::npos ? std::string(name) : join(split_path(name));
    at_ = end;
  }

  void check_key(std::string_view name, bool may_be_group) const {
    const char separator = may_be_group && name.find('/') != std::string_view::npos ? '/' : '.';
    const std::string plain =
        separator == '.' && may_be_group ? join(split_path(name)) : std::string(name);
    size_t begin = 0;
    while (!plain.empty() && begin <= plain.size()) {
      const size_t end = std::min(plain.find(separator, begin), plain.size());
      const std::string_view part = std::string_view(plain).substr(begin, end - begin);
      const bool number = !part.empty() && std::all_of(part.begin(), part.end(), is_digit);
      const bool word =
          !part.empty() && !is_digit(part[0]) && part[0] != '-' &&
          std::all_of(part.begin(), part.end(), [](char c) { return is_id(c) || c == '$'; });
      if (!word && !(number && separator == '.' && begin > 0)) {
        fail(fmt::format("'{}' is not a valid key: write section.name, or group/subgroup", name));
      }
      begin = end + 1;
    }
    if (plain.empty() && may_be_group) {
      fail("expected a key");
    }
  }

  Value element(int depth) {
    if (depth > kMaximumDepth) {
      fail(fmt::format("nested deeper than {} levels", kMaximumDepth));
    }
    switch (peek()) {
      case '[':
        return list(depth);
      case '{':
        return dict(depth);
      case '"':
      case '\'':
        return quoted();
      default:
        break;
    }
    if (const size_t open = function_open(); open != 0) {
      return function(open, depth);
    }
    return primitive(true);
  }

  Value list(int depth) {
    Value result = Value::list();
    ++at_;
    skip_space();
    if (peek() == ']') {
      ++at_;
      return result;
    }
    for (;;) {
      result.items.push_back(element(depth + 1));
      if (!separator(']')) {
        return result;
      }
    }
  }

  Value dict(int depth) {
    Value result = Value::map();
    ++at_;
    skip_space();
    if (peek() == '}') {
      ++at_;
      return result;
    }
    for (;;) {
      const Value name = primitive(false);
      skip_space();
      if (peek() != ':') {
        fail(fmt::format("expected a colon after '{}'", name.text));
      }
      ++at_;
      skip_space();
      const std::string text = name.is_null() ? "null" : name.text;
      if (result.find(text) != nullptr) {
        fail(fmt::format("duplicate key '{}'", text));
      }
      result.entries.push_back({text, element(depth + 1)});
      if (!separator('}')) {
        return result;
      }
    }
  }

  /// Consumes a separator. Returns true for a comma and false for `end`.
  bool separator(char end) {
    skip_space();
    if (peek() == ',') {
      ++at_;
      skip_space();
      return true;
    }
    if (peek() != end) {
      fail(fmt::format("expected a comma or '{}'", end));
    }
    ++at_;
    return false;
  }

  /// Returns the index of the '(' if a function call starts here; otherwise 0.
  size_t function_open() const {
    size_t end = at_;
    if (!(is_letter(peek()) || peek() == '_')) {
      return 0;
    }
    while (end < text_.size() && is_id(text_[end])) {
      ++end;
    }
    while (end < text_.size() && is_space(text_[end])) {
      ++end;
    }
    return end < text_.size() && text_[end] == '(' ? end : 0;
  }

  Value function(size_t open, int depth) {
    std::string name(text_.substr(at_, open - at_));
    while (is_space(name.back())) {
      name.pop_back();
    }
    at_ = open + 1;
    skip_space();
    std::vector<std::string> names;
    std::vector<Value> arguments;
    if (peek() == ')') {
      ++at_;
    } else {
      do {
        names.push_back(argument_name());
        arguments.push_back(element(depth + 1));
      } while (separator(')'));
    }
    try {
      return call_override_function(name, names, std::move(arguments));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", source_, error.message()), error.remedy());
    }
  }

  std::string argument_name() {
    size_t end = at_;
    while (end < text_.size() && is_id(text_[end])) {
      ++end;
    }
    const std::string name(text_.substr(at_, end - at_));
    while (end < text_.size() && is_space(text_[end])) {
      ++end;
    }
    if (name.empty() || is_digit(name[0]) || end >= text_.size() || text_[end] != '=') {
      return "";
    }
    at_ = end + 1;
    skip_space();
    return name;
  }

  /// Reads a string in single or double quotes. A backslash escapes the same quote, and backslashes
  /// before it.
  Value quoted() {
    const char quote = peek();
    ++at_;
    std::string text;
    for (;;) {
      if (at_ == text_.size()) {
        fail(fmt::format("missing closing {}", quote));
      }
      size_t backslashes = 0;
      while (peek(backslashes) == '\\') {
        ++backslashes;
      }
      at_ += backslashes;
      if (peek() == quote) {
        text.append(backslashes / 2, '\\');
        ++at_;
        if (backslashes % 2 == 0) {
          return Value::scalar(std::move(text), true);
        }
        text += quote;
      } else {
        text.append(backslashes, '\\');
        if (at_ < text_.size()) {
          text += peek();
          ++at_;
        }
      }
    }
  }

  /// Reads an interpolation ${...}, which may be nested.
  void interpolation(std::string& text) {
    size_t open = 0;
    const size_t begin = at_;
    do {
      if (at_ >= text_.size()) {
        at_ = begin;
        fail("missing closing }");
      }
      if (peek() == '$' && peek(1) == '{') {
        ++open;
        ++at_;
      } else if (peek() == '}') {
        --open;
      }
      ++at_;
    } while (open > 0);
    text += text_.substr(begin, at_ - begin);
  }

  Value primitive(bool is_value) {
    static constexpr std::string_view kOther = "_-/\\+.$%*@?|";
    static constexpr std::string_view kEscaped = "\\()[]{}:=, \t";
    std::string text;
    bool escaped = false;
    size_t kept = 0;  // length without trailing white space
    while (at_ < text_.size()) {
      const char letter = peek();
      if (letter == '$' && peek(1) == '{' && is_value) {
        interpolation(text);
        kept = text.size();
        continue;
      }
      if (letter == '\\' && at_ + 1 < text_.size() &&
          kEscaped.find(peek(1)) != std::string_view::npos) {
        text += peek(1);
        at_ += 2;
        escaped = true;
        kept = text.size();
        continue;
      }
      const bool allowed = is_letter(letter) || is_digit(letter) || (letter & 0x80) != 0 ||
                           kOther.find(letter) != std::string_view::npos ||
                           (letter == ':' && is_value);
      if (!allowed && !is_space(letter)) {
        break;
      }
      text += letter;
      ++at_;
      kept = allowed ? text.size() : kept;
    }
    if (kept == 0) {
      if (at_ < text_.size()) {
        unexpected();
      }
      fail("expected a value");
    }
    text.resize(kept);
    Value value = Value::scalar(std::move(text), escaped);
    return scalar_type(value) == ScalarType::kNull ? Value::null() : value;
  }

  std::string_view text_;
  std::string_view source_;
  size_t at_ = 0;
};

}  // namespace

bool looks_like_override(std::string_view text) {
  if (text.empty() || text[0] == '-') {
    return false;
  }
  if (text[0] == '+' || text[0] == '~') {
    return true;
  }
  const size_t equal = text.find('=');
  return equal != std::string_view::npos && equal > 0;
}

Override parse_override(std::string_view text) {
  return Parser(text, text).whole();
}

Value parse_override_value(std::string_view text, std::string_view source) {
  return Parser(text, source).value();
}

}  // namespace lockstep::config
