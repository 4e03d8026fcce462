// Parses the Unicode property tables into ranges of code points.
#include "text/unicode/code_point_sets.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "text/unicode/unicode.h"

namespace lockstep::text {
namespace {

#include "text/unicode/category_tables.inc"

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

void add(CodePointRanges& ranges, char32_t first, char32_t last) {
  if (!ranges.empty() && ranges.back().second + 1 == first) {
    ranges.back().second = last;
  } else {
    ranges.emplace_back(first, last);
  }
}

/// Normalizes a property name by removing case, spaces, '-' and '_' (UAX 44, UAX44-LM3).
std::string loosely(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') {
      plain.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
  }
  return plain;
}

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"digit", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
};

std::string_view category_of(std::string_view plain_name) {
  for (const auto& [name, category] : kLongNames) {
    const bool is_short =
        plain_name.size() == category.size() &&
        std::equal(plain_name.begin(), plain_name.end(), category.begin(), [](char a, char b) {
          return a == std::tolower(b);
        });
    if (name == plain_name || is_short) {
      return category;
    }
  }
  return {};
}

/// Returns the ranges of a category. Entries of kCategories are a hexadecimal code point and two
/// letters, such as 30Nd.
CodePointRanges category_ranges(std::string_view category) {
  CodePointRanges ranges;
  std::string_view rest = kCategories;
  bool inside = false;
  char32_t first = 0;
  while (!rest.empty()) {
    uint32_t point = 0;
    // A category starts with an uppercase letter, and the hexadecimal digits are lowercase.
    const size_t digits = rest.find_first_not_of("0123456789abcdef");
    std::from_chars(rest.data(), rest.data() + digits, point, 16);
    if (inside) {
      add(ranges, first, point - 1);
    }
    inside = rest.substr(digits, 2).starts_with(category);
    first = point;
    rest.remove_prefix(digits + 2);
  }
  if (inside) {
    add(ranges, first, kLastCodePoint);
  }
  return ranges;
}

/// Returns the ranges of an entry in kProperties: "Name:first-last,first-last;".
std::optional<CodePointRanges> listed_ranges(std::string_view plain_name) {
  std::string_view rest = kProperties;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const size_t end = rest.find(';');
    if (loosely(rest.substr(0, colon)) == plain_name) {
      CodePointRanges ranges;
      const char* at = rest.data() + colon;
      const char* const last_place = rest.data() + end;
      while (at < last_place) {
        uint32_t first = 0;
        uint32_t last = 0;
        at = std::from_chars(at + 1, last_place, first, 16).ptr;
        at = std::from_chars(at + 1, last_place, last, 16).ptr;
        ranges.emplace_back(first, last);
      }
      return ranges;
    }
    rest.remove_prefix(end + 1);
  }
  return std::nullopt;
}

CodePointRanges white_space() {
  const Characters characters;
  CodePointRanges ranges;
  for (char32_t point = 0; point <= kLastCodePoint; ++point) {
    if (characters.is_space(point)) {
      add(ranges, point, point);
    }
  }
  return ranges;
}

CodePointRanges without_surrogates(const CodePointRanges& ranges) {
  CodePointRanges kept;
  for (const auto& [first, last] : ranges) {
    if (last < kFirstSurrogate || first > kLastSurrogate) {
      kept.emplace_back(first, last);
      continue;
    }
    if (first < kFirstSurrogate) {
      kept.emplace_back(first, kFirstSurrogate - 1);
    }
    if (last > kLastSurrogate) {
      kept.emplace_back(kLastSurrogate + 1, last);
    }
  }
  return kept;
}

}  // namespace

std::optional<CodePointRanges> property_ranges(std::string_view name) {
  std::string plain = loosely(name);
  if (plain == "alpha") {
    plain = "alphabetic";
  }
  if (plain == "whitespace" || plain == "space") {
    return white_space();
  }
  if (const std::string_view category = category_of(plain); !category.empty()) {
    return without_surrogates(category_ranges(category));
  }
  return listed_ranges(plain);
}

CodePointRanges subtract(const CodePointRanges& from, const CodePointRanges& ranges) {
  CodePointRanges left;
  auto other = ranges.begin();
  for (auto [first, last] : from) {
    while (other != ranges.end() && other->second < first) {
      ++other;
    }
    for (auto cut = other; cut != ranges.end() && cut->first <= last; ++cut) {
      if (cut->first > first) {
        left.emplace_back(first, cut->first - 1);
      }
      first = cut->second + 1;
    }
    if (first <= last) {
      left.emplace_back(first, last);
    }
  }
  return left;
}

CodePointRanges complement(const CodePointRanges& ranges) {
  CodePointRanges outside;
  char32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) {
      outside.emplace_back(next, first - 1);
    }
    next = last + 1;
  }
  if (next <= kLastCodePoint) {
    outside.emplace_back(next, kLastCodePoint);
  }
  return without_surrogates(outside);
}

}  // namespace lockstep::text
