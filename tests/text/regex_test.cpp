// Tests of regular expressions in Oniguruma's syntax.
#include "text/stages/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/stages/regex_syntax.h"
#include "text/unicode/code_point_sets.h"

namespace lockstep::text {
namespace regex_test {

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  for (const Match& match : Regex(pattern, "t").matches(text)) {
    if (match.is_match) {
      found.push_back(text.substr(match.begin, match.end - match.begin));
    }
  }
  return found;
}

using List = std::vector<std::string>;

TEST(Regex, KnowsTheClassesOfUnicode16) {
  EXPECT_EQ(matches(R"(\p{L}+)", "a\U000105D2 \U00016D43z"), (List{"a\U000105D2", "\U00016D43z"}));
  EXPECT_EQ(matches(R"([^\p{L}]+)", "1\U000105D2 "), (List{"1", " "}));
  EXPECT_EQ(matches(R"(\P{L}+)", "1\U000105D2 "), (List{"1", " "}));
  EXPECT_EQ(matches(R"([x\P{L}]+)", "1\U000105D2 x"), (List{"1", " x"}));
  EXPECT_EQ(matches(R"(\p{^L}+)", "1\U000105D2 "), (List{"1", " "}));
  EXPECT_EQ(matches(R"(\s+)", "a\u180e \u0085b"), (List{" \u0085"}));
  EXPECT_EQ(matches(R"(\d)", "1\u00b2\u0663"), (List{"1", "\u0663"}));
  EXPECT_EQ(matches(R"(\w+)", "a\u0301_\u00b2-"), (List{"a\u0301_\u00b2"}));
  EXPECT_EQ(matches(R"([\w]+)", "a\u0301_\u00b2-"), (List{"a\u0301_"}));  // as in Oniguruma
  EXPECT_EQ(
      matches(R"(\p{Han}+|\p{Latin}+)", "ab\u4e2d\U00031350c"),
      (List{"ab", "\u4e2d\U00031350", "c"}));
}

TEST(Regex, ReadsRubysSyntax) {
  EXPECT_EQ(matches(R"(a{,2}b)", "aaab b"), (List{"aab", "b"}));
  EXPECT_EQ(matches(R"((?m:a.b))", "a\nb"), List{"a\nb"});
  EXPECT_EQ(matches(R"(a.b)", "a\nb a\rb"), List{"a\rb"});
  EXPECT_EQ(matches(R"(^b$)", "a\nb\nc"), List{"b"});
  EXPECT_EQ(matches(R"(\u00e9\v)", "\u00e9\x0b"), List{"\u00e9\x0b"});
  EXPECT_EQ(matches(R"([[:digit:]a]+)", "1a2"), List{"1a2"});
  EXPECT_EQ(matches(R"(\{2})", "{2}"), List{"{2}"});
}

TEST(Regex, RefusesWhatItWouldReadOtherwise) {
  for (const char* pattern :
       {R"([a&&b])",
        R"([a[bc]])",
        R"((?~a))",
        R"(a{1,2}+)",
        R"(\p{Nonsense})",
        R"(\p)",
        R"(\pL)",
        R"(\h)",
        R"(\Q)",
        R"([]a])",
        R"([[:punct:]])",
        R"(()",
        R"([)",
        R"([a\)",
        R"(\p{L)",
        R"(a\)",
        R"(\u00)"}) {
    try {
      Regex regex(pattern, "t.json: pre_tokenizer.pattern");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("t.json: pre_tokenizer.pattern"), std::string::npos);
      EXPECT_NE(error.message().find(pattern), std::string::npos) << error.message();
    }
  }
}

TEST(Regex, ShowsTheBeginOfALongPattern) {
  try {
    Regex regex("(" + std::string(20'000, 'a'), "t");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the pattern (aaaa"), std::string::npos) << error.message();
    EXPECT_LT(error.message().size(), 400U);
  }
  EXPECT_EQ(shown_pattern(std::string(159, 'a') + "\u00e9"), std::string(159, 'a') + "...");
}

TEST(Regex, NeedsNoStackForALongMatch) {
  const std::string text(1'000'000, 'a');
  EXPECT_EQ(matches(R"((?:a|b|\s)+)", text).size(), 1U);
}

TEST(Regex, StopsWhereItWouldTakeTooLong) {
  for (const char* pattern : {R"((a+)+[bc])", R"((?=.*x)a)"}) {
    try {
      Regex(pattern, "t").matches(std::string(300'000, 'a'));
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("takes too long"), std::string::npos);
    }
  }
}

TEST(CodePointSets, SubtractAndComplement) {
  EXPECT_EQ(
      subtract({{1, 10}, {20, 30}}, {{0, 1}, {3, 4}, {10, 22}, {30, 40}}),
      (CodePointRanges{{2, 2}, {5, 9}, {23, 29}}));
  EXPECT_EQ(subtract({{1, 2}}, {}), (CodePointRanges{{1, 2}}));
  EXPECT_EQ(complement({{0, 0xD7FF}, {0xE000, 0x10FFFE}}), (CodePointRanges{{0x10FFFF, 0x10FFFF}}));
  EXPECT_EQ(complement({}), (CodePointRanges{{0, 0xD7FF}, {0xE000, 0x10FFFF}}));
  EXPECT_EQ(property_ranges("Zs"), property_ranges("space_separator"));
  EXPECT_EQ(property_ranges("Nonsense"), std::nullopt);
  size_t letters = 0;
  const std::optional<CodePointRanges> ranges = property_ranges("L");
  for (const auto& [first, last] : ranges.value()) {
    letters += last - first + 1;
  }
  EXPECT_EQ(letters, 141028U);
}

}  // namespace regex_test
}  // namespace lockstep::text
