// Implements case mapping, character classes and stripping of Python's str.
#include "jinja/python_characters.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/format.h"
#include "jinja/value.h"
#include "text/unicode/code_point_sets.h"
#include "text/unicode/unicode_normalization.h"
#include "text/unicode/utf8.h"

namespace lockstep::jinja {
namespace {

using text::CodePointRanges;

bool is_in(const CodePointRanges& ranges, char32_t c) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c, [](char32_t point, const auto& run) {
        return point < run.first;
      });
  return after != ranges.begin() && c <= std::prev(after)->second;
}

CodePointRanges named(std::string_view property) {
  return text::property_ranges(property).value_or(CodePointRanges{});
}

bool is_ascii_letter(char32_t c, char first) {
  return c >= static_cast<char32_t>(first) && c < static_cast<char32_t>(first) + 26;
}

/// Returns one character as UTF-8.
std::string utf8(char32_t c) {
  return text::to_utf8(std::u32string_view(&c, 1));
}

/// Maps each lowercase letter to its uppercase letter; if there are several, to the first one.
const std::map<char32_t, char32_t>& upper_letters() {
  static const std::map<char32_t, char32_t> all = [] {
    std::map<char32_t, char32_t> made{
        {0xB5, 0x39C}, {0x131, 'I'}, {0x17F, 'S'}, {0x3C2, 0x3A3}};  // µ ı ſ ς
    for (const char* category : {"Lu", "Nl", "So"}) {
      for (const auto& [first, last] : named(category)) {
        for (char32_t c = first; c <= last; ++c) {
          const std::u32string lower = text::to_code_points(text::to_lower_case(utf8(c)));
          if (lower.size() == 1 && lower[0] != c) {
            made.emplace(lower[0], c);
          }
        }
      }
    }
    return made;
  }();
  return all;
}

[[noreturn]] void fail_case(char32_t c, std::string_view which) {
  fail(fmt::format(
      "the {} case of '{}' (U+{:04X}) is not supported: write the text in that case",
      which,
      utf8(c),
      static_cast<uint32_t>(c)));
}

/// Returns true if `c`, which has no uppercase letter of its own, maps to several letters or to a
/// letter shared with another one.
bool has_special_case(char32_t c) {
  static constexpr std::array<std::pair<char32_t, char32_t>, 13> kRuns{
      {{0x149, 0x149},
       {0x1F0, 0x1F0},
       {0x345, 0x345},
       {0x390, 0x390},
       {0x3B0, 0x3B0},
       {0x3D0, 0x3D6},
       {0x3F0, 0x3F5},
       {0x587, 0x587},
       {0x1C80, 0x1C88},
       {0x1E96, 0x1E9B},
       {0x1F50, 0x1F56},
       {0x1F80, 0x1FFF},
       {0xFB00, 0xFB17}}};
  return std::any_of(kRuns.begin(), kRuns.end(), [&](const auto& run) {
    return c >= run.first && c <= run.second;
  });
}

bool is_title_case(char32_t c) {
  static const CodePointRanges all = named("Lt");
  return is_in(all, c);
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(is_ascii_letter(c, 'a') ? c - 32 : c);
    return;
  }
  if (c == 0xDF) {
    out += "SS";
    return;
  }
  const auto found = upper_letters().find(c);
  if (found == upper_letters().end() && (is_title_case(c) || has_special_case(c)) &&
      !is_upper_case(c)) {
    fail_case(c, "upper");
  }
  text::append_code_point(out, found == upper_letters().end() ? c : found->second);
}

void append_title(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "Ss";
  } else if ((c >= 0x1C4 && c <= 0x1CC) || (c >= 0x1F1 && c <= 0x1F3)) {
    fail_case(c, "title");
  } else if (c >= 0x10D0 && c <= 0x10FF) {  // Georgian has uppercase letters but no title case
    text::append_code_point(out, c);
  } else {
    append_upper(out, c);
  }
}

/// Returns true for characters that str.lower() skips to find the end of a word.
bool is_ignored_in_words(char32_t c) {
  static const std::array<CodePointRanges, 5> all{
      named("Mn"), named("Me"), named("Cf"), named("Lm"), named("Sk")};
  static constexpr std::u32string_view kOthers =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  return kOthers.find(c) != std::u32string_view::npos ||
         std::any_of(all.begin(), all.end(), [&](const auto& ranges) { return is_in(ranges, c); });
}

/// Returns true if the sigma at `at` is the last letter of a word.
bool ends_word(std::u32string_view points, size_t at) {
  size_t before = at, after = at + 1;
  while (before > 0 && is_ignored_in_words(points[before - 1])) {
    --before;
  }
  while (after < points.size() && is_ignored_in_words(points[after])) {
    ++after;
  }
  return before > 0 && is_cased(points[before - 1]) &&
         !(after < points.size() && is_cased(points[after]));
}

std::string lower_case(std::u32string_view points, size_t from) {
  constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;
  std::string out;
  for (size_t at = from; at < points.size(); ++at) {
    if (points[at] == kSigma && ends_word(points, at)) {
      text::append_code_point(out, kFinalSigma);
    } else {
      out += text::to_lower_case(utf8(points[at]));
    }
  }
  return out;
}

template <class Is>
std::string stripped(std::string_view text, bool left, bool right, const Is& is) {
  std::u32string points = text::to_code_points(text);
  while (right && !points.empty() && is(points.back())) {
    points.pop_back();
  }
  size_t begin = 0;
  while (left && begin < points.size() && is(points[begin])) {
    ++begin;
  }
  return text::to_utf8(std::u32string_view(points).substr(begin));
}

bool is_all_of_case(std::string_view text, bool (*is)(char32_t), bool (*is_other)(char32_t)) {
  bool any = false;
  for (const char32_t c : text::to_code_points(text)) {
    if (is_other(c) || is_title_case(c)) {
      return false;
    }
    any = any || is(c);
  }
  return any;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool ends_line(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) {
    return c >= 0x20;
  }
  static const CodePointRanges other = named("C"), separators = named("Z");
  return !is_in(other, c) && !is_in(separators, c);
}

bool is_letter(char32_t c) {
  if (c < 0x80) {
    return is_ascii_letter(c, 'a') || is_ascii_letter(c, 'A');
  }
  static const CodePointRanges all = named("L");
  return is_in(all, c);
}

bool is_decimal(char32_t c) {
  static const CodePointRanges all = named("Nd");
  return is_in(all, c);
}

bool is_number(char32_t c) {
  static const CodePointRanges all = named("N");
  return is_in(all, c);
}

bool is_upper_case(char32_t c) {
  static const CodePointRanges letters = named("Lu");
  return c < 0x80 ? is_ascii_letter(c, 'A') : is_in(letters, c);
}

bool is_lower_case(char32_t c) {
  static const CodePointRanges letters = named("Ll");
  return c < 0x80 ? is_ascii_letter(c, 'a') : c == 0xAA || c == 0xBA || is_in(letters, c);
}

bool is_cased(char32_t c) {
  return is_upper_case(c) || is_lower_case(c) || is_title_case(c);
}

std::string upper_case(std::string_view text) {
  std::string out;
  for (const char32_t c : text::to_code_points(text)) {
    append_upper(out, c);
  }
  return out;
}

std::string lower_case(std::string_view text) {
  return lower_case(text::to_code_points(text), 0);
}

std::string title_case(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char32_t c : text::to_code_points(text)) {
    if (begins) {
      append_title(out, c);
    } else {
      out += text::to_lower_case(utf8(c));
    }
    begins = !is_cased(c);
  }
  return out;
}

std::string capitalized(std::string_view text) {
  const std::u32string points = text::to_code_points(text);
  std::string out;
  if (!points.empty()) {
    append_title(out, points.front());
  }
  return out + lower_case(points, std::min<size_t>(points.size(), 1));
}

bool is_all_upper_case(std::string_view text) {
  return is_all_of_case(text, is_upper_case, is_lower_case);
}

bool is_all_lower_case(std::string_view text) {
  return is_all_of_case(text, is_lower_case, is_upper_case);
}

std::string strip(std::string_view text, bool left, bool right) {
  return stripped(text, left, right, is_space);
}

std::string strip(std::string_view text, std::string_view characters, bool left, bool right) {
  const std::u32string points = text::to_code_points(characters);
  return stripped(
      text, left, right, [&](char32_t c) { return points.find(c) != std::u32string::npos; });
}

}  // namespace lockstep::jinja
