// The sets of code points that tokenizers split by: Unicode 16, as Hugging Face's tokenizers see
// them. The tables come from tools/generate_unicode_tables.py.
#pragma once

#include <cstdint>

namespace lockstep::text {

/// The classes that GPT-2's pattern and its descendants tell apart. A code point has exactly one.
enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

/// More sets, as bits: a code point may be in several.
enum CharacterSet : uint8_t {
  kClassBits = 3,        // its CharacterClass
  kWordBit = 4,          // \w of the regex crate
  kNumericBit = 8,       // char::is_numeric
  kPunctuationBit = 16,  // ASCII punctuation and category P
  kMarkBit = 32,         // what StripAccents drops
  kNonspacingBit = 64,   // what BERT's normalizer drops as accents
  kControlBit = 128,     // what BERT's normalizer drops as control characters
};

namespace internal {
/// One byte a code point; built once, at the first use.
const uint8_t* character_sets();
}  // namespace internal

/// A reader of the tables; cheap to copy, take one outside a loop.
class Characters {
 public:
  Characters() : sets_(internal::character_sets()) {}
  CharacterClass class_of(char32_t code_point) const {
    return static_cast<CharacterClass>(sets_[code_point] & kClassBits);
  }
  bool in(char32_t code_point, CharacterSet set) const { return (sets_[code_point] & set) != 0; }
  bool is_space(char32_t code_point) const {
    return class_of(code_point) == CharacterClass::kSpace;
  }

 private:
  const uint8_t* sets_;
};

}  // namespace lockstep::text
