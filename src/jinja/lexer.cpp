// Implements the lexer for Jinja templates with transformers' white-space settings.
#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "base/format.h"
#include "jinja/python_characters.h"
#include "jinja/value.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Returns the length of `text` without trailing white space. With `to_line`, removes only white
/// space on the last line.
size_t without_space_at_end(std::string_view text, bool to_line) {
  size_t end = text.size();
  while (end > 0 && !(to_line && text[end - 1] == '\n')) {
    const char* const before = text::previous_code_point(text.data(), text.data() + end);
    if (!is_space(text::code_point_at(before))) {
      break;
    }
    end = static_cast<size_t>(before - text.data());
  }
  return end;
}

size_t space_at_start(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_space(text::code_point_at(text.data() + at))) {
    at += text::code_point_length(text[at]);
  }
  return at;
}

class Lexer {
 public:
  /// Line endings in `source` must be \n.
  explicit Lexer(std::string_view source) : source_(source) {
    if (source_.ends_with('\n')) {
      source_.remove_suffix(1);
    }
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      read_text();
      if (at_ < source_.size()) {
        read_tag();
      }
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  std::string_view rest() const { return source_.substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }
  void advance(size_t count) {
    const std::string_view passed = source_.substr(at_, count);
    line_ += std::count(passed.begin(), passed.end(), '\n');
    at_ += count;
  }

  size_t next_tag(size_t from) const {
    size_t found = std::string_view::npos;
    for (const char* tag : {"{{", "{%", "{#"}) {
      found = std::min(found, source_.find(tag, from));
    }
    return found;
  }

  /// Reads text up to the next tag and trims it as specified by the surrounding tags.
  void read_text() {
    const size_t end = std::min(next_tag(at_), source_.size());
    std::string text(source_.substr(at_, end - at_));
    advance(text.size());
    add_text(trimmed_before_tag(std::move(text), end));
  }

  std::string trimmed_before_tag(std::string text, size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (tag >= source_.size()) {
      return text;
    }
    if (sign == '-') {
      text.resize(without_space_at_end(text, false));
    } else if (sign != '+' && source_[tag + 1] != '{') {  // lstrip_blocks
      const size_t begin = without_space_at_end(text, true);
      if (begin > 0 ? text[begin - 1] == '\n' : is_first_) {
        text.resize(begin);
      }
    }
    return text;
  }

  void add_text(std::string text) {
    if (strip_next_) {
      text.erase(0, space_at_start(text));
    } else if (drop_newline_ && text.starts_with('\n')) {
      text.erase(0, 1);
    }
    strip_next_ = drop_newline_ = is_first_ = false;
    if (!text.empty()) {
      add(TokenKind::kText, std::move(text));
    }
  }

  /// Sets how the text after a tag is trimmed.
  void close_tag(bool strips, bool keeps, bool is_output) {
    strip_next_ = strips;
    drop_newline_ = !keeps && !is_output;
  }

  void read_tag() {
    const bool is_output = looking_at("{{");
    if (looking_at("{#")) {
      const size_t end = source_.find("#}", at_ + 2);
      if (end == std::string_view::npos) {
        fail(fmt::format("line {}: a comment is not closed", line_));
      }
      const char sign = end > at_ + 2 ? source_[end - 1] : ' ';
      advance(end + 2 - at_);
      close_tag(sign == '-', sign == '+', false);
      return;
    }
    const int64_t begin = line_;
    advance(2);
    if (looking_at("-") || looking_at("+")) {
      advance(1);
    }
    if (!is_output && read_raw()) {
      return;
    }
    add(is_output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    int64_t depth = 0;
    while (true) {
      skip_space();
      if (at_ >= source_.size()) {
        fail(fmt::format("line {}: a tag is not closed", begin));
      }
      if (depth == 0 && read_tag_end(is_output)) {
        return;
      }
      read_token(depth);
    }
  }

  bool read_tag_end(bool is_output) {
    const std::string_view end = is_output ? "}}" : "%}";
    const bool signs = looking_at("-") || (looking_at("+") && !is_output);
    if (!rest().substr(signs ? 1 : 0).starts_with(end)) {
      return false;
    }
    const char sign = rest().front();
    advance(signs ? 3 : 2);
    add(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
    close_tag(signs && sign == '-', signs && sign == '+', is_output);
    return true;
  }

  /// Reads {% raw %} ... {% endraw %}. Returns false for other tags.
  bool read_raw() {
    const std::string_view before = rest();
    const size_t name = before.find_first_not_of(" \t\r\n");
    if (name == std::string_view::npos || !before.substr(name).starts_with("raw")) {
      return false;
    }
    const std::string_view after = before.substr(name + 3);
    const size_t close = after.find_first_not_of(" \t\r\n");
    if (close == std::string_view::npos ||
        !(after.substr(close).starts_with("%}") || after.substr(close).starts_with("-%}"))) {
      return false;
    }
    advance(name + 3 + close + (after[close] == '-' ? 3 : 2));
    close_tag(after[close] == '-', /*keeps=*/true, false);
    for (size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      const bool has_sign =
          tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+');
      const size_t sign = has_sign ? 1 : 0;
      const std::string_view inside = source_.substr(tag + 2 + sign);
      const size_t word = inside.find_first_not_of(" \t\r\n");
      const size_t end = source_.find("%}", tag);
      if (word != std::string_view::npos && inside.substr(word).starts_with("endraw") &&
          end != std::string_view::npos) {
        std::string text(source_.substr(at_, tag - at_));
        add_text(trimmed_before_tag(std::move(text), tag));
        const char last = source_[end - 1];
        advance(end + 2 - at_);
        close_tag(last == '-', last == '+', false);
        return true;
      }
    }
    fail(fmt::format("line {}: raw is not closed", line_));
  }

  void skip_space() {
    while (at_ < source_.size() && std::isspace(static_cast<unsigned char>(source_[at_])) != 0) {
      advance(1);
    }
  }

  void read_token(int64_t& depth) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      size_t end = at_ + 1;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) {
        ++end;
      }
      std::string name(source_.substr(at_, end - at_));
      for (const char32_t point : text::to_code_points(name)) {
        if (point != '_' && !is_letter(point) && !is_number(point)) {
          fail(fmt::format(
              "line {}: unexpected U+{:04X} in a tag", line_, static_cast<uint32_t>(point)));
        }
      }
      add(TokenKind::kName, std::move(name));
      advance(end - at_);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '"' || c == '\'') {
      read_string(c);
    } else {
      read_operator(depth);
    }
  }

  /// Reads 0x1F, 0b11 or 0o17. Returns false if the input is something else.
  bool read_based_number() {
    constexpr size_t kMostDigits = 15;  // base-16 digits that fit in 64 bits
    const char mark = at_ + 1 < source_.size() ? source_[at_ + 1] : ' ';
    const int base = mark == 'x' || mark == 'X'   ? 16
                     : mark == 'o' || mark == 'O' ? 8
                     : mark == 'b' || mark == 'B' ? 2
                                                  : 0;
    if (source_[at_] != '0' || base == 0) {
      return false;
    }
    size_t end = at_ + 2;
    while (end < source_.size() && std::isalnum(static_cast<unsigned char>(source_[end])) != 0) {
      ++end;
    }
    const std::string_view digits = source_.substr(at_ + 2, end - at_ - 2);
    int64_t number = 0;
    const char* const last = digits.data() + digits.size();
    const auto [at, error] = std::from_chars(digits.data(), last, number, base);
    if (digits.empty() || digits.size() > kMostDigits || at != last || error != std::errc()) {
      fail(fmt::format(
          "line {}: {} is not a number, or is too large", line_, source_.substr(at_, end - at_)));
    }
    add(TokenKind::kInteger, std::to_string(number));
    advance(end - at_);
    return true;
  }

  void read_number() {
    if (read_based_number()) {
      return;
    }
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() &&
             (is_digit(source_[end]) || (source_[end] == '_' && is_digit(source_[end - 1]) &&
                                         end + 1 < source_.size() && is_digit(source_[end + 1])))) {
        ++end;
      }
    };
    digits();
    bool is_float = false;
    const bool is_attribute =
        at_ > 0 && source_[at_ - 1] == '.';  // x.0.1: digits after a dot are attributes
    if (!is_attribute && end + 1 < source_.size() && source_[end] == '.' &&
        is_digit(source_[end + 1])) {
      is_float = true;
      ++end;
      digits();
    }
    if (!is_attribute && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (end + 1 + sign < source_.size() && is_digit(source_[end + 1 + sign])) {
        is_float = true;
        end += 1 + sign;
        digits();
      }
    }
    std::string text(source_.substr(at_, end - at_));
    std::erase(text, '_');
    if (!is_float && text[0] == '0' && text.find_first_not_of('0') != std::string::npos) {
      fail(fmt::format("line {}: the number {} has a leading 0", line_, text));
    }
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    advance(end - at_);
  }

  void read_string(char quote) {
    const int64_t begin = line_;
    std::string text;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] == '\\' && at + 1 < source_.size()) {
        at += read_escape(at + 1, text) + 1;
      } else {
        text += source_[at++];
      }
    }
    if (at >= source_.size()) {
      fail(fmt::format("line {}: a string is not closed", begin));
    }
    advance(at + 1 - at_);
    add(TokenKind::kString, std::move(text));
  }

  /// Decodes a Python escape. Returns the number of characters after the backslash.
  size_t read_escape(size_t at, std::string& text) const {
    static constexpr std::array<std::pair<char, char>, 10> kSimple{
        {{'n', '\n'},
         {'t', '\t'},
         {'r', '\r'},
         {'\\', '\\'},
         {'\'', '\''},
         {'"', '"'},
         {'b', '\b'},
         {'f', '\f'},
         {'v', '\v'},
         {'a', '\a'}}};
    const char c = source_[at];
    for (const auto& [name, value] : kSimple) {
      if (c == name) {
        text += value;
        return 1;
      }
    }
    if (c == '\n') {
      return 1;
    }
    if (c >= '0' && c <= '7') {
      size_t count = 0;
      uint32_t point = 0;
      for (; count < 3 && at + count < source_.size() && source_[at + count] >= '0' &&
             source_[at + count] <= '7';
           ++count) {
        point = point * 8 + static_cast<uint32_t>(source_[at + count] - '0');
      }
      text::append_code_point(text, point);
      return count;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0 && c != 'N') {
      text += {'\\', c};
      return 1;
    }
    const std::string number(source_.substr(at + 1, digits));
    const bool is_hex = digits > 0 && number.size() == digits &&
                        number.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    const unsigned long point = is_hex ? std::stoul(number, nullptr, 16) : 0;
    if (!is_hex || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
      fail(fmt::format(
          "line {}: \\{}{} is not a supported escape: write the character, or \\uXXXX",
          line_,
          c,
          text::replace_invalid_utf8(number)));
    }
    text::append_code_point(text, static_cast<char32_t>(point));
    return 1 + digits;
  }

  void read_operator(int64_t& depth) {
    static constexpr std::array<std::string_view, 26> kOperators{
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  ".",  ",",  ":",  "|",  "(", ")", "[", "]", "{", "}", ";"};
    for (const std::string_view op : kOperators) {
      if (looking_at(op)) {
        depth += op == "(" || op == "[" || op == "{"   ? 1
                 : op == ")" || op == "]" || op == "}" ? -1
                                                       : 0;
        add(TokenKind::kOperator, std::string(op));
        advance(op.size());
        return;
      }
    }
    fail(fmt::format("line {}: unexpected '{}' in a tag", line_, source_[at_]));
  }

  std::string_view source_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool strip_next_ = false, drop_newline_ = false;
  bool is_first_ = true;  // at the start of the template
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  std::string text;
  for (size_t at = 0; at < source.size(); ++at) {
    const bool returns = source[at] == '\r';
    text += returns ? '\n' : source[at];
    at += returns && source.substr(at + 1).starts_with('\n') ? 1 : 0;
  }
  return Lexer(text).run();
}

}  // namespace lockstep::jinja
