// Tests of UTF-8 repair and character classes.
#include "text/unicode/utf8.h"

#include <gtest/gtest.h>

#include "text/unicode/byte_alphabet.h"
#include "text/unicode/unicode.h"

namespace lockstep::text {
namespace utf8_test {

TEST(Utf8, WritesAndReadsEveryCodePoint) {
  for (char32_t point = 0; point < 0x110000; ++point) {
    if (point >= 0xD800 && point < 0xE000) {
      continue;
    }
    std::string text;
    append_code_point(text, point);
    ASSERT_EQ(code_point_at(text.data()), point);
    ASSERT_EQ(code_point_length(text[0]), text.size());
    const char* const begin = text.data();
    ASSERT_EQ(previous_code_point(begin, begin + text.size()), begin);
    ASSERT_EQ(
        previous_code_point(begin + text.size() - 1, begin + text.size()), begin + text.size() - 1);
    ASSERT_EQ(valid_utf8_prefix(text), text.size());
  }
}

TEST(Utf8, ReplacesEachMaximalPart) {
  const auto replaced = [](std::string_view bytes) { return replace_invalid_utf8(bytes); };
  EXPECT_EQ(replaced(""), "");
  EXPECT_EQ(replaced("abc \u00e9 \u4e2d \U0001F600"), "abc \u00e9 \u4e2d \U0001F600");
  EXPECT_EQ(replaced("a\xFF z"), "a\uFFFD z");
  EXPECT_EQ(replaced("\xC0\x80"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(replaced("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(replaced("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(replaced("\xE4\xB8z"), "\uFFFDz");  // truncated: one U+FFFD for both bytes
  EXPECT_EQ(replaced("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(replaced("\xF0\x9F\x98\xF0\x9F\x98\x80"), "\uFFFD\U0001F600");
  EXPECT_EQ(replaced("12345678\x80"), "12345678\uFFFD");
}

TEST(Utf8, TellsIncompleteFromWrong) {
  EXPECT_TRUE(ill_formed_at_start("\xF0\x9F").incomplete);
  EXPECT_EQ(ill_formed_at_start("\xF0\x9F").length, 2U);
  EXPECT_FALSE(ill_formed_at_start("\xF0\x9Fz").incomplete);
  EXPECT_FALSE(ill_formed_at_start("\x80").incomplete);
  EXPECT_FALSE(ill_formed_at_start("\xED\xA0").incomplete);
}

TEST(ByteAlphabet, MapsEachByteToACharacterAndBack) {
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(character_to_byte(byte_to_character(static_cast<uint8_t>(byte))), byte);
  }
  EXPECT_EQ(bytes_to_alphabet(" \n\xFFz"), "\u0120\u010a\u00ffz");
  EXPECT_EQ(alphabet_to_bytes("\u0120\u010a\u00ffz"), " \n\xFFz");
  EXPECT_EQ(alphabet_to_bytes("a b"), std::nullopt);
  EXPECT_EQ(character_to_byte(0x144), -1);
  EXPECT_EQ(character_to_byte(0x10FFFF), -1);
}

TEST(Unicode, IsOfVersion16) {
  const Characters characters;
  size_t letters = 0;
  size_t numbers = 0;
  size_t spaces = 0;
  for (char32_t point = 0; point < 0x110000; ++point) {
    letters += characters.class_of(point) == CharacterClass::kLetter ? 1 : 0;
    numbers += characters.class_of(point) == CharacterClass::kNumber ? 1 : 0;
    spaces += characters.is_space(point) ? 1 : 0;
  }
  EXPECT_EQ(letters, 141028U);
  EXPECT_EQ(numbers, 1911U);
  EXPECT_EQ(spaces, 25U);
  EXPECT_EQ(characters.class_of(0x105D2), CharacterClass::kLetter);  // Todhri, added in Unicode 16
  EXPECT_EQ(characters.class_of(0x180E), CharacterClass::kOther);    // a space until Unicode 6.3
  EXPECT_TRUE(characters.in('_', kWordBit));
  EXPECT_TRUE(characters.in('$', kPunctuationBit));
  EXPECT_TRUE(characters.in(0x2167, kNumericBit));
}

}  // namespace utf8_test
}  // namespace lockstep::text
