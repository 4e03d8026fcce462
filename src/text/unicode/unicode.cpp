// Builds the table of character classes from the generated Unicode ranges.
#include "text/unicode/unicode.h"

#include <memory>
#include <span>

namespace lockstep::text {
namespace {

#include "text/unicode/unicode_tables.inc"

constexpr size_t kCodePoints = 0x110000;

void mark(uint8_t* sets, std::span<const char32_t> changes, uint8_t bits) {
  for (size_t i = 0; i + 1 < changes.size(); i += 2) {
    for (char32_t point = changes[i]; point < changes[i + 1]; ++point) {
      sets[point] |= bits;
    }
  }
}

std::unique_ptr<uint8_t[]> build_sets() {
  auto sets = std::make_unique<uint8_t[]>(kCodePoints);
  mark(sets.get(), kLetters, static_cast<uint8_t>(CharacterClass::kLetter));
  mark(sets.get(), kNumbers, static_cast<uint8_t>(CharacterClass::kNumber));
  mark(sets.get(), kWhiteSpace, static_cast<uint8_t>(CharacterClass::kSpace));
  mark(sets.get(), kWordCharacters, kWordBit);
  mark(sets.get(), kNumeric, kNumericBit);
  mark(sets.get(), kPunctuation, kPunctuationBit);
  mark(sets.get(), kMarks, kMarkBit);
  mark(sets.get(), kNonspacingMarks, kNonspacingBit);
  mark(sets.get(), kControls, kControlBit);
  return sets;
}

}  // namespace

const uint8_t* internal::character_sets() {
  static const std::unique_ptr<uint8_t[]> sets = build_sets();
  return sets.get();
}

}  // namespace lockstep::text
