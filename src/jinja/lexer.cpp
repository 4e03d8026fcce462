#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/format.h"
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

class Lexer {
 public:
  /// `source` has \n for line ends.
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

  /// Text up to the next tag, cut as that tag and the one before ask.
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
      while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
        text.pop_back();
      }
    } else if (sign != '+' && source_[tag + 1] != '{') {  // lstrip_blocks
      size_t begin = text.size();
      while (begin > 0 && std::isspace(static_cast<unsigned char>(text[begin - 1])) != 0 &&
             text[begin - 1] != '\n') {
        --begin;
      }
      if (begin > 0 ? text[begin - 1] == '\n' : is_first_) {
        text.resize(begin);
      }
    }
    return text;
  }

  void add_text(std::string text) {
    if (strip_next_) {
      const auto begin = std::find_if(text.begin(), text.end(), [](char c) {
        return std::isspace(static_cast<unsigned char>(c)) == 0;
      });
      text.erase(text.begin(), begin);
    } else if (drop_newline_ && text.starts_with('\n')) {
      text.erase(0, 1);
    }
    strip_next_ = drop_newline_ = is_first_ = false;
    if (!text.empty()) {
      add(TokenKind::kText, std::move(text));
    }
  }

  /// What an end of a tag asks of the text behind it.
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
    const bool signs = looking_at("-") || looking_at("+");
    if (!rest().substr(signs ? 1 : 0).starts_with(end)) {
      return false;
    }
    const char sign = rest().front();
    advance(signs ? 3 : 2);
    add(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
    close_tag(signs && sign == '-', signs && sign == '+', is_output);
    return true;
  }

  /// {% raw %} to {% endraw %}, where that is what stands here.
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
    close_tag(after[close] == '-', false, false);
    for (size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      const size_t sign = tag + 2 < source_.size() && source_[tag + 2] == '-' ? 1 : 0;
      const std::string_view inside = source_.substr(tag + 2 + sign);
      const size_t word = inside.find_first_not_of(" \t\r\n");
      const size_t end = source_.find("%}", tag);
      if (word != std::string_view::npos && inside.substr(word).starts_with("endraw") &&
          end != std::string_view::npos) {
        std::string text(source_.substr(at_, tag - at_));
        add_text(trimmed_before_tag(std::move(text), tag));
        const bool strips = source_[end - 1] == '-';
        advance(end + 2 - at_);
        close_tag(strips, false, false);
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
      add(TokenKind::kName, std::string(source_.substr(at_, end - at_)));
      advance(end - at_);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '"' || c == '\'') {
      read_string(c);
    } else {
      read_operator(depth);
    }
  }

  void read_number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) {
        ++end;
      }
    };
    digits();
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
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

  /// Python's escapes; how many characters behind the backslash there are.
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
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const std::string number(source_.substr(at + 1, digits));
    const bool is_hex = digits > 0 && number.size() == digits &&
                        number.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!is_hex) {
      text += {'\\', c};
      return 1;
    }
    const unsigned long point = std::stoul(number, nullptr, 16);
    text::append_code_point(text, point <= 0x10FFFF ? static_cast<char32_t>(point) : 0xFFFD);
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
    fail(fmt::format("line {}: '{}' is not expected in a tag", line_, source_[at_]));
  }

  std::string_view source_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool strip_next_ = false, drop_newline_ = false;
  bool is_first_ = true;  // the text that is read begins the template
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
