// Tests of the hand-written split scanners.
#include "text/stages/split_patterns.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "text/stages/regex.h"

namespace lockstep::text {
namespace split_patterns_test {

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> pieces(SplitPattern pattern, std::string_view text) {
  std::vector<std::string> all;
  split_by(pattern, text, [&](std::string_view piece) { all.emplace_back(piece); });
  return all;
}

using List = std::vector<std::string>;

TEST(SplitPatterns, AreKnownByTheirText) {
  EXPECT_EQ(known_pattern(kGpt2), SplitPattern::kGpt2);
  EXPECT_EQ(known_pattern(kLlama3), SplitPattern::kLlama3);
  EXPECT_EQ(known_pattern(kQwen2), SplitPattern::kQwen2);
  EXPECT_EQ(known_pattern(R"(\p{L}+)"), std::nullopt);
}

TEST(SplitPatterns, CutAsGpt2) {
  EXPECT_EQ(
      pieces(SplitPattern::kGpt2, "I've said it's 2024,  don't\n\n  go!! \t"),
      (List{
          "I",
          "'ve",
          " said",
          " it",
          "'s",
          " 2024",
          ",",
          " ",
          " don",
          "'t",
          "\n\n ",
          " go",
          "!!",
          " \t"}));
  EXPECT_EQ(pieces(SplitPattern::kGpt2, "'S''ll'lx"), (List{"'", "S", "''", "ll", "'", "lx"}));
  EXPECT_EQ(
      pieces(SplitPattern::kGpt2, " \u00a0 \u4e2d\u6587\u0663"),
      (List{" \u00a0", " \u4e2d\u6587", "\u0663"}));
  EXPECT_EQ(pieces(SplitPattern::kGpt2, ""), List{});
  EXPECT_EQ(pieces(SplitPattern::kGpt2, "'"), List{"'"});
  EXPECT_EQ(pieces(SplitPattern::kGpt2, " "), List{" "});
}

TEST(SplitPatterns, CutAsLlama3AndQwen2) {
  const std::string text = "It'S 12345\t\tx,\r\n\n  y \n z?\n\n  ";
  EXPECT_EQ(
      pieces(SplitPattern::kLlama3, text),
      (List{
          "It",
          "'S",
          " ",
          "123",
          "45",
          "\t",
          "\tx",
          ",\r\n\n",
          " ",
          " y",
          " \n",
          " z",
          "?\n\n",
          "  "}));
  EXPECT_EQ(pieces(SplitPattern::kQwen2, "x 12\u00b2"), (List{"x", " ", "1", "2", "\u00b2"}));
  EXPECT_EQ(pieces(SplitPattern::kLlama3, "a'\u017fx"), (List{"a", "'\u017f", "x"}));
}

/// Compares the scanners with PCRE2, on letters that all Unicode versions agree on.
TEST(SplitPatterns, EqualTheRegularExpressions) {
  const std::vector<std::string> alphabet{
      "a",      "s",      "t",      "L",      "l",      "v",      "e",          "r",
      "D",      "m",      "'",      "'",      " ",      " ",      "\n",         "\r",
      "\t",     "1",      "2",      "9",      ".",      "!",      "_",          "-",
      "\u00e9", "\u4e2d", "\u00a0", "\u2028", "\u0663", "\u00b2", "\U0001F600", "\u0301"};
  std::mt19937 random(7);
  for (const auto& [pattern, expression] :
       {std::pair(SplitPattern::kGpt2, kGpt2),
        std::pair(SplitPattern::kLlama3, kLlama3),
        std::pair(SplitPattern::kQwen2, kQwen2)}) {
    const Regex regex(expression, "test");
    for (int i = 0; i < 4000; ++i) {
      std::string text;
      for (size_t length = 1 + random() % 24; length > 0; --length) {
        text += alphabet[random() % alphabet.size()];
      }
      List expected;
      for (const Match& match : regex.matches(text)) {
        expected.push_back(text.substr(match.begin, match.end - match.begin));
        ASSERT_TRUE(match.is_match);
      }
      ASSERT_EQ(pieces(pattern, text), expected) << text;
    }
  }
}

}  // namespace split_patterns_test
}  // namespace lockstep::text
