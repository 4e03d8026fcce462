// Implements Unicode normalization forms and lowercase mapping.
#include "text/unicode/unicode_normalization.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

#include "text/unicode/normalization_tables.inc"

constexpr size_t kAllCodePoints = 0x110000;

// Hangul syllables are composed by arithmetic (Unicode 16, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

bool is_hangul_syllable(char32_t point) {
  return point >= kSyllables && point < kSyllables + kSyllableCount;
}

enum Trait : uint8_t {
  kCanonicalTrait = 1,   // has a canonical decomposition
  kCompatibleTrait = 2,  // has a separate compatibility decomposition
  kCombiningTrait = 4,   // has a combining class other than 0
  kSecondTrait = 8,      // composes with a preceding code point
  kExcludedTrait = 16,   // canonical decomposition does not compose back to it
};

/// Reads the numbers in a table. They are separated by one of ".=-/;", and an entry ends with ';'.
class TableReader {
 public:
  explicit TableReader(std::string_view table) : rest_(table) {}
  bool at_end() const { return rest_.empty(); }
  /// Returns the next number and the separator after it.
  char32_t next(char& separator, int base = 16) {
    uint32_t number = 0;
    const auto result = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number, base);
    separator = *result.ptr;
    rest_.remove_prefix(static_cast<size_t>(result.ptr - rest_.data()) + 1);
    return number;
  }

 private:
  std::string_view rest_;
};

class Tables {
 public:
  static const Tables& get() {
    static const Tables tables;
    return tables;
  }

  bool has(char32_t point, uint8_t traits) const { return (traits_[point] & traits) != 0; }
  uint8_t combining_class(char32_t point) const {
    return has(point, kCombiningTrait) ? classes_.at(point) : 0;
  }
  void decompose(char32_t point, bool compatible, std::u32string& out) const;
  /// Returns the composed code point, or 0 if the pair does not compose.
  char32_t compose(char32_t first, char32_t second) const;
  char32_t lower(char32_t point) const {
    const auto found = lower_.find(point);
    return found == lower_.end() ? point : found->second;
  }

 private:
  using Map = std::unordered_map<char32_t, std::u32string>;
  Tables();
  void read_decompositions(std::string_view table, uint8_t traits, Map& map);
  void read_compositions();

  std::vector<uint8_t> traits_ = std::vector<uint8_t>(kAllCodePoints);
  Map canonical_, compatible_;
  std::unordered_map<uint64_t, char32_t> compositions_;
  std::unordered_map<char32_t, uint8_t> classes_;
  std::unordered_map<char32_t, char32_t> lower_;
};

uint64_t pair_key(char32_t first, char32_t second) {
  return static_cast<uint64_t>(first) << 32 | second;
}

void Tables::read_decompositions(std::string_view table, uint8_t traits, Map& map) {
  for (TableReader reader(table); !reader.at_end();) {
    char separator = 0;
    const char32_t point = reader.next(separator);
    std::u32string& parts = map[point];
    while (separator != ';') {
      parts.push_back(reader.next(separator));
    }
    traits_[point] |= traits;
  }
}

void Tables::read_compositions() {
  for (TableReader reader(kCompositions); !reader.at_end();) {
    char separator = 0;
    const char32_t first = reader.next(separator);
    const char32_t second = reader.next(separator);
    const char32_t whole = reader.next(separator);
    compositions_[pair_key(first, second)] = whole;
    traits_[second] |= kSecondTrait;
    traits_[whole] &= static_cast<uint8_t>(~kExcludedTrait);
  }
}

Tables::Tables() {
  read_decompositions(kCanonical, kCanonicalTrait | kExcludedTrait, canonical_);
  read_decompositions(kCompatible, kCompatibleTrait, compatible_);
  read_compositions();
  for (char32_t point = kSyllables; point < kSyllables + kSyllableCount; ++point) {
    traits_[point] |= kCanonicalTrait;
  }
  for (char32_t point = kVowels; point < kVowels + kVowelCount; ++point) {
    traits_[point] |= kSecondTrait;
  }
  for (char32_t point = kTails + 1; point < kTails + kTailCount; ++point) {
    traits_[point] |= kSecondTrait;
  }
  for (TableReader reader(kCombiningClasses); !reader.at_end();) {
    char separator = 0;
    const char32_t first = reader.next(separator);
    const char32_t last = reader.next(separator);
    const auto combining = static_cast<uint8_t>(reader.next(separator, 10));
    for (char32_t point = first; point <= last; ++point) {
      classes_[point] = combining;
      traits_[point] |= kCombiningTrait;
    }
  }
  for (TableReader reader(kLowerCase); !reader.at_end();) {
    char separator = 0;
    const char32_t first = reader.next(separator);
    const char32_t last = reader.next(separator);
    const char32_t step = reader.next(separator);
    const char32_t target = reader.next(separator);
    for (char32_t point = first; point <= last; point += step) {
      lower_[point] = target + (point - first);
    }
  }
}

void Tables::decompose(char32_t point, bool compatible, std::u32string& out) const {
  if (compatible && has(point, kCompatibleTrait)) {
    out += compatible_.at(point);
  } else if (is_hangul_syllable(point)) {
    const char32_t index = point - kSyllables;
    out.push_back(kLeads + index / (kVowelCount * kTailCount));
    out.push_back(kVowels + index % (kVowelCount * kTailCount) / kTailCount);
    if (index % kTailCount != 0) {
      out.push_back(kTails + index % kTailCount);
    }
  } else if (has(point, kCanonicalTrait)) {
    out += canonical_.at(point);
  } else {
    out.push_back(point);
  }
}

char32_t Tables::compose(char32_t first, char32_t second) const {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels &&
      second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (is_hangul_syllable(first) && (first - kSyllables) % kTailCount == 0 && second > kTails &&
      second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  const auto found = compositions_.find(pair_key(first, second));
  return found == compositions_.end() ? 0 : found->second;
}

/// Stably sorts each run of combining marks by class (UAX 15, D109).
void reorder(const Tables& tables, std::u32string& points) {
  for (size_t at = 0; at < points.size();) {
    size_t end = at;
    while (end < points.size() && tables.has(points[end], kCombiningTrait)) {
      ++end;
    }
    if (end - at > 1) {
      std::stable_sort(
          points.begin() + static_cast<std::ptrdiff_t>(at),
          points.begin() + static_cast<std::ptrdiff_t>(end),
          [&](char32_t left, char32_t right) {
            return tables.combining_class(left) < tables.combining_class(right);
          });
    }
    at = end + 1;
  }
}

/// Applies canonical composition (UAX 15, D117) in place.
void compose(const Tables& tables, std::u32string& points) {
  size_t used = 0;
  size_t starter = points.size();  // none yet
  uint8_t last_class = 0;
  for (size_t at = 0; at < points.size(); ++at) {
    const char32_t point = points[at];
    const uint8_t combining = tables.combining_class(point);
    const bool adjacent = used == starter + 1;
    if (starter < points.size() && (adjacent || last_class < combining)) {
      if (const char32_t whole = tables.compose(points[starter], point); whole != 0) {
        points[starter] = whole;
        continue;
      }
    }
    if (combining == 0) {
      starter = used;
    }
    last_class = combining;
    points[used++] = point;
  }
  points.resize(used);
}

uint8_t active_traits(NormalizationForm form) {
  switch (form) {
    case NormalizationForm::kNfc:
      return kExcludedTrait | kSecondTrait | kCombiningTrait;
    case NormalizationForm::kNfkc:
      return kExcludedTrait | kSecondTrait | kCombiningTrait | kCompatibleTrait;
    case NormalizationForm::kNfd:
      return kCanonicalTrait | kCombiningTrait;
    case NormalizationForm::kNfkd:
      return kCanonicalTrait | kCombiningTrait | kCompatibleTrait;
  }
  return 0;
}

}  // namespace

std::string normalize(std::string_view text, NormalizationForm form) {
  const Tables& tables = Tables::get();
  const uint8_t active = active_traits(form);
  const bool compatible = form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  const bool composes = form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  std::string normal;
  normal.reserve(text.size());
  std::u32string points;
  size_t done = 0;
  size_t last = 0;  // last code point before `at`, a candidate for composition
  for (size_t at = 0; at < text.size();) {
    if (!tables.has(code_point_at(text.data() + at), active)) {
      last = at;
      at += code_point_length(text[at]);
      continue;
    }
    normal += text.substr(done, last - done);
    points.clear();
    do {
      tables.decompose(code_point_at(text.data() + last), compatible, points);
      last += code_point_length(text[last]);
    } while (last < text.size() &&
             (last <= at || tables.has(code_point_at(text.data() + last), active)));
    reorder(tables, points);
    if (composes) {
      compose(tables, points);
    }
    for (const char32_t point : points) {
      append_code_point(normal, point);
    }
    at = done = last;
  }
  normal += text.substr(done);
  return normal;
}

std::string to_lower_case(std::string_view text) {
  const Tables& tables = Tables::get();
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += code_point_length(text[at])) {
    const char32_t point = code_point_at(text.data() + at);
    if (point < 0x80) {
      lower.push_back(static_cast<char>(point >= 'A' && point <= 'Z' ? point + 0x20 : point));
    } else if (point == 0x130) {
      lower += "i\u0307";
    } else {
      append_code_point(lower, tables.lower(point));
    }
  }
  return lower;
}

}  // namespace lockstep::text
