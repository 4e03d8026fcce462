// Translates Oniguruma patterns to PCRE2 syntax.
#include "text/stages/regex_syntax.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/format.h"
#include "text/unicode/code_point_sets.h"
#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

/// Returns the code points that a character class matches in the linked PCRE2 version, determined
/// by matching all of Unicode. Empty if PCRE2 does not know the class.
CodePointRanges find_pcre_ranges(const std::string& class_text) {
  const std::string pattern = "[" + class_text + "]+";
  int error = 0;
  PCRE2_SIZE offset = 0;
  const auto free_code = [](pcre2_code* code) { pcre2_code_free(code); };
  const std::unique_ptr<pcre2_code, decltype(free_code)> code(
      pcre2_compile(
          reinterpret_cast<PCRE2_SPTR>(pattern.data()),
          pattern.size(),
          PCRE2_UTF | PCRE2_UCP,
          &error,
          &offset,
          nullptr),
      free_code);
  if (code == nullptr) {
    return {};
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const auto free_data = [](pcre2_match_data* data) { pcre2_match_data_free(data); };
  const std::unique_ptr<pcre2_match_data, decltype(free_data)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), free_data);
  std::string text;
  for (char32_t point = 0; point < 0x110000; ++point) {
    if (point < 0xD800 || point > 0xDFFF) {
      append_code_point(text, point);
    }
  }
  CodePointRanges ranges;
  PCRE2_SIZE from = 0;
  while (data != nullptr && pcre2_match(
                                code.get(),
                                reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(),
                                from,
                                PCRE2_NO_UTF_CHECK,
                                data.get(),
                                nullptr) > 0) {
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    from = ends[1];
    ranges.emplace_back(
        code_point_at(text.data() + ends[0]),
        code_point_at(previous_code_point(text.data(), text.data() + from)));
  }
  return ranges;
}

/// Cached find_pcre_ranges(). Most tokenizer patterns use the same few classes.
CodePointRanges pcre_ranges(const std::string& class_text) {
  constexpr size_t kMostKnown = 64;
  static std::mutex mutex;
  static std::map<std::string, CodePointRanges> known;
  const std::lock_guard lock(mutex);
  if (known.size() >= kMostKnown && !known.contains(class_text)) {
    known.clear();
  }
  const auto [found, is_new] = known.try_emplace(class_text);
  if (is_new) {
    found->second = find_pcre_ranges(class_text);
  }
  return found->second;
}

std::string class_text_of(const CodePointRanges& ranges) {
  std::string text;
  for (const auto& [first, last] : ranges) {
    text += first == last ? fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(first))
                          : fmt::format(
                                "\\x{{{:x}}}-\\x{{{:x}}}",
                                static_cast<uint32_t>(first),
                                static_cast<uint32_t>(last));
  }
  return text;
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& place)
      : pattern_(pattern),
        place_(place) {}

  std::string run() {
    while (!at_end()) {
      switch (peek()) {
        case '\\':
          escape();
          break;
        case '[':
          read_class();
          break;
        case '(':
          open_group();
          break;
        case '{':
          interval();
          break;
        default:
          copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  bool at_end(size_t ahead = 0) const { return at_ + ahead >= pattern_.size(); }
  char peek(size_t ahead = 0) const { return at_end(ahead) ? '\0' : pattern_[at_ + ahead]; }
  bool starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t count) {
    count = std::min(count, pattern_.size() - at_);  // a pattern may end within an escape
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "{}: the pattern {} contains {}, which is not supported",
            place_,
            shown_pattern(pattern_),
            what),
        "rewrite the pattern in the syntax that Oniguruma and PCRE2 have in common");
  }

  /// Context of an escape. Outside of a class, \w includes six Latin-1 numbers (such as U+00B2).
  /// Inside a class it does not.
  enum class Where { kOutside, kInClass };

  CodePointRanges ranges_of(const std::string& name, Where where) const {
    const std::optional<CodePointRanges> ranges = property_ranges(name);
    if (!ranges) {
      unsupported(fmt::format("the property \"{}\"", name));
    }
    const bool is_word = name == "Word" || name == "word";
    return is_word && where == Where::kInClass
               ? subtract(*ranges, {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}})
               : *ranges;
  }

  /// Returns the contents of a character class that matches the property.
  const std::string& property(const std::string& name, Where where) {
    const auto [found, is_new] = properties_.try_emplace({name, where});
    if (!is_new) {
      return found->second;
    }
    const CodePointRanges ranges = ranges_of(name, where);
    // Uses PCRE2's own classes, which are fast, and adds the missing code points.
    const std::string own = name == "Word" ? R"(\p{L}\p{M}\p{Nd}\p{Pc})" : "\\p{" + name + "}";
    const CodePointRanges known = pcre_ranges(own);
    const bool usable = !known.empty() && subtract(known, ranges).empty();
    found->second = usable ? own + class_text_of(subtract(ranges, known)) : class_text_of(ranges);
    return found->second;
  }

  /// Property named by an escape, such as \p{L}, \P{^L}, \s or \W. Reading it advances past the
  /// escape.
  struct Named {
    std::string name;
    bool negative;
  };
  std::optional<Named> named_property() {
    const char letter = peek(1);
    if (letter == 'p' || letter == 'P') {
      const size_t end = pattern_.find('}', at_);
      if (peek(2) != '{' || end == std::string_view::npos) {
        unsupported("\\p without a name in braces");
      }
      std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
      const bool caret = name.starts_with('^');
      name.remove_prefix(caret ? 1 : 0);
      at_ = end + 1;
      return Named{std::string(name), (letter == 'P') != caret};
    }
    constexpr std::pair<char, const char*> kLetters[] = {
        {'s', "Space"}, {'d', "Nd"}, {'w', "Word"}};
    for (const auto& [known, name] : kLetters) {
      if (letter == known || letter == known - 0x20) {
        at_ += 2;
        return Named{name, letter != known};
      }
    }
    return std::nullopt;
  }

  /// Translates escapes with the same meaning or an equivalent in PCRE2. Returns false for other
  /// escapes.
  bool simple_escape() {
    const char letter = peek(1);
    if (letter == 'h' || letter == 'H') {  // hexadecimal digit in Ruby
      unsupported("\\h");
    }
    if (letter == 'v') {
      out_ += "\\x{b}";
      at_ += 2;
      return true;
    }
    if (letter == 'u') {
      const std::string_view digits = pattern_.substr(at_).substr(2, 4);
      if (digits.size() < 4 ||
          digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
        unsupported("\\u without four digits");
      }
      out_ += fmt::format("\\x{{{}}}", digits);
      at_ += 6;
      return true;
    }
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    constexpr std::string_view kAlike = "abefnrtxAGKRXZzgkB";
    if (is_letter && kAlike.find(letter) == std::string_view::npos) {
      unsupported(fmt::format("\\{}", letter));
    }
    return false;
  }

  void escape() {
    if (const std::optional<Named> named = named_property()) {
      out_ += named->negative ? "[^" : "[";
      out_ += property(named->name, Where::kOutside);
      out_ += "]";
    } else if (peek(1) == 'b' || peek(1) == 'B') {
      const std::string& word = property("Word", Where::kOutside);
      out_ += peek(1) == 'b' ? fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word)
                             : fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word);
      at_ += 2;
    } else if (!simple_escape()) {
      copy(2);
    }
  }

  void read_class() {
    copy(peek(1) == '^' ? 2 : 1);
    if (peek() == ']') {
      unsupported("a class that is empty or starts with ]");
    }
    while (!at_end() && peek() != ']') {
      if (peek() == '[') {
        posix_class();
      } else if (starts("&&")) {
        unsupported("an intersection of classes (&&)");
      } else if (peek() != '\\') {
        copy(1);
      } else if (const std::optional<Named> named = named_property()) {
        out_ += named->negative ? class_text_of(complement(ranges_of(named->name, Where::kInClass)))
                                : property(named->name, Where::kInClass);
      } else if (!simple_escape()) {
        copy(2);
      }
    }
    copy(1);
  }

  void posix_class() {
    constexpr std::pair<std::string_view, const char*> kClasses[] = {
        {"[:alpha:]", "Alphabetic"},
        {"[:digit:]", "Nd"},
        {"[:space:]", "Space"},
        {"[:word:]", "Word"}};
    for (const auto& [text, name] : kClasses) {
      if (starts(text)) {
        out_ += property(name, Where::kInClass);
        at_ += text.size();
        return;
      }
    }
    unsupported("a class in a class");
  }

  /// Translates group flags. (?m) in Ruby is (?s) in PCRE2.
  void open_group() {
    if (!starts("(?")) {
      copy(1);
      return;
    }
    if (starts("(?~")) {
      unsupported("an absent group (?~");
    }
    copy(2);
    while (peek() == 'i' || peek() == 'm' || peek() == 'x' || peek() == '-') {
      out_.push_back(peek() == 'm' ? 's' : peek());
      ++at_;
    }
  }

  /// Translates intervals. In Ruby, {,n} means {0,n}, and + after an interval repeats it.
  void interval() {
    const size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
    const bool is_interval = end != std::string_view::npos && pattern_[end] == '}' && end > at_ + 1;
    if (!is_interval) {
      copy(1);
      return;
    }
    if (end + 1 < pattern_.size() && pattern_[end + 1] == '+') {
      unsupported("a + after an interval");
    }
    if (peek(1) == ',') {
      out_ += "{0";
      ++at_;
    }
    copy(end + 1 - at_);
  }

  std::string_view pattern_;
  const std::string& place_;
  size_t at_ = 0;
  std::string out_;
  std::map<std::pair<std::string, Where>, std::string> properties_;
};

}  // namespace

std::string to_pcre(std::string_view pattern, const std::string& place) {
  return Translator(pattern, place).run();
}

std::string shown_pattern(std::string_view pattern) {
  constexpr size_t kMost = 160;
  const size_t shown = valid_utf8_prefix(pattern.substr(0, kMost));
  return shown < pattern.size() ? fmt::format("{}...", pattern.substr(0, shown))
                                : std::string(pattern);
}

}  // namespace lockstep::text
