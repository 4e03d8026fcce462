// Implements segmentation into extended grapheme clusters (UAX 29).
#include "text/unicode/graphemes.h"

#include <charconv>
#include <cstdint>
#include <vector>

#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

#include "text/unicode/grapheme_tables.inc"

/// Grapheme_Cluster_Break values, encoded as the letters in the table. Values of Hangul syllables
/// are computed.
enum class Break : uint8_t {
  kOther = '-',
  kControl = 'C',
  kExtend = 'E',
  kJoiner = 'Z',
  kRegional = 'R',
  kPrepend = 'P',
  kSpacing = 'S',
  kLead = 'L',
  kVowel = 'V',
  kTail = 'T',
  kPictographic = 'X',
};

/// Indic_Conjunct_Break values.
enum class Conjunct : uint8_t { kNone = '-', kConsonant = 'c', kLinker = 'l', kExtend = 'e' };

struct Kind {
  Break breaks = Break::kOther;
  Conjunct conjunct = Conjunct::kNone;
};

std::vector<Kind> read_table() {
  std::vector<Kind> kinds(0x110000);
  const std::string_view table = kGraphemes;
  const char* at = table.data();
  const char* const end = at + table.size();
  while (at < end) {
    uint32_t first = 0;
    uint32_t last = 0;
    at = std::from_chars(at, end, first, 16).ptr + 1;
    at = std::from_chars(at, end, last, 16).ptr + 1;
    for (uint32_t point = first; point <= last; ++point) {
      kinds[point] = {static_cast<Break>(at[0]), static_cast<Conjunct>(at[1])};
    }
    at += 3;
  }
  return kinds;
}

Kind kind_of(char32_t point) {
  static const std::vector<Kind> kinds = read_table();
  return kinds[point];
}

bool is_syllable(char32_t point) {
  return point >= 0xAC00 && point <= 0xD7A3;
}
bool is_open_syllable(char32_t point) {
  return is_syllable(point) && (point - 0xAC00) % 28 == 0;
}

/// Implements rules GB6 to GB8.
bool joins_hangul(char32_t left, Break left_break, char32_t right, Break right_break) {
  if (left_break == Break::kLead) {
    return right_break == Break::kLead || right_break == Break::kVowel || is_syllable(right);
  }
  if (left_break == Break::kVowel || is_open_syllable(left)) {
    return right_break == Break::kVowel || right_break == Break::kTail;
  }
  return (left_break == Break::kTail || is_syllable(left)) && right_break == Break::kTail;
}

/// State for rules that depend on more than the previous code point: GB9c, GB11, GB12.
struct Memory {
  bool after_pictograph = false;   // ExtPict Extend*
  bool joined_pictograph = false;  // ExtPict Extend* ZWJ
  bool after_consonant = false;    // Consonant [Extend Linker]*
  bool linked_consonant = false;   // same, with at least one Linker
  bool odd_regionals = false;

  void take(Kind kind) {
    joined_pictograph = after_pictograph && kind.breaks == Break::kJoiner;
    after_pictograph =
        kind.breaks == Break::kPictographic || (after_pictograph && kind.breaks == Break::kExtend);
    const bool extends = kind.conjunct == Conjunct::kExtend || kind.conjunct == Conjunct::kLinker;
    linked_consonant =
        after_consonant && extends && (linked_consonant || kind.conjunct == Conjunct::kLinker);
    after_consonant = kind.conjunct == Conjunct::kConsonant || (after_consonant && extends);
    odd_regionals = kind.breaks == Break::kRegional && !odd_regionals;
  }
};

}  // namespace

size_t grapheme_end(std::string_view text, size_t at) {
  char32_t left = code_point_at(text.data() + at);
  Kind left_kind = kind_of(left);
  at += code_point_length(text[at]);
  Memory memory;
  memory.take(left_kind);
  while (at < text.size()) {
    const char32_t right = code_point_at(text.data() + at);
    const Kind kind = kind_of(right);
    const bool controls = left_kind.breaks == Break::kControl || kind.breaks == Break::kControl;
    const bool joins =
        controls ? left == '\r' && right == '\n'
                 : kind.breaks == Break::kExtend || kind.breaks == Break::kJoiner ||
                       kind.breaks == Break::kSpacing || left_kind.breaks == Break::kPrepend ||
                       joins_hangul(left, left_kind.breaks, right, kind.breaks) ||
                       (memory.linked_consonant && kind.conjunct == Conjunct::kConsonant) ||
                       (memory.joined_pictograph && kind.breaks == Break::kPictographic) ||
                       (memory.odd_regionals && kind.breaks == Break::kRegional);
    if (!joins) {
      break;
    }
    memory.take(kind);
    left = right;
    left_kind = kind;
    at += code_point_length(text[at]);
  }
  return at;
}

}  // namespace lockstep::text
