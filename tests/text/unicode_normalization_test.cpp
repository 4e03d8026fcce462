// Tests of Unicode normalization forms and lowercase mapping.
#include "text/unicode/unicode_normalization.h"

#include <gtest/gtest.h>

#include "text/unicode/graphemes.h"

namespace lockstep::text {
namespace unicode_normalization_test {

using Form = NormalizationForm;

TEST(Normalization, ComposesAndDecomposes) {
  EXPECT_EQ(normalize("e\u0301", Form::kNfc), "\u00e9");
  EXPECT_EQ(normalize("\u00e9", Form::kNfd), "e\u0301");
  EXPECT_EQ(normalize("\u1e69", Form::kNfd), "s\u0323\u0307");
  EXPECT_EQ(normalize("s\u0307\u0323", Form::kNfc), "\u1e69");  // marks are sorted first
  EXPECT_EQ(
      normalize("\u212b \u2126", Form::kNfc), "\u00c5 \u03a9");  // singletons do not recompose
  EXPECT_EQ(normalize("\u0958", Form::kNfc), "\u0915\u093c");    // excluded from composition
  EXPECT_EQ(
      normalize("\ufb01\u00bd\u2460", Form::kNfkc),
      "fi1\u20442"
      "1");
  EXPECT_EQ(normalize("\ufb01", Form::kNfc), "\ufb01");
  EXPECT_EQ(normalize("\u1e9b\u0323", Form::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(normalize("", Form::kNfkc), "");
  EXPECT_EQ(normalize("plain text", Form::kNfkd), "plain text");
}

TEST(Normalization, KnowsHangul) {
  EXPECT_EQ(normalize("\u1112\u1161\u11ab", Form::kNfc), "\ud55c");
  EXPECT_EQ(normalize("\ud55c\uae00", Form::kNfd), "\u1112\u1161\u11ab\u1100\u1173\u11af");
  EXPECT_EQ(normalize("\ud558\u11ab", Form::kNfc), "\ud55c");
  EXPECT_EQ(
      normalize("\ud55c\u11ab", Form::kNfc), "\ud55c\u11ab");  // already has a final consonant
}

TEST(Normalization, BlocksMarksOfTheSameClass) {
  EXPECT_EQ(normalize("a\u0301\u030a", Form::kNfc), "\u00e1\u030a");
  EXPECT_EQ(normalize("a\u0301\u0323", Form::kNfc), "\u1ea1\u0301");
  EXPECT_EQ(normalize("a\u0334\u0301", Form::kNfc), "\u00e1\u0334");
  EXPECT_EQ(normalize("\u0301e\u0301", Form::kNfc), "\u0301\u00e9");
}

TEST(Normalization, IsQuickOnManyMarks) {
  std::string text = "a";
  for (int i = 0; i < 300'000; ++i) {
    text += i % 2 == 0 ? "\u0301" : "\u0323";
  }
  const std::string sorted = normalize(text, Form::kNfd);
  EXPECT_EQ(sorted.size(), text.size());
  EXPECT_EQ(sorted.substr(0, 5), "a\u0323\u0323");
}

TEST(LowerCase, GoesByCodePoint) {
  EXPECT_EQ(
      to_lower_case("AbC \u00c9\u0391\u03a3 \u0130 \U00010400"),
      "abc \u00e9\u03b1\u03c3 i\u0307 \U00010428");
}

std::vector<std::string> clusters(const std::string& text) {
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = grapheme_end(text, at);
    all.push_back(text.substr(at, end - at));
    at = end;
  }
  return all;
}

TEST(Graphemes, FollowTheRulesOfUax29) {
  using List = std::vector<std::string>;
  EXPECT_EQ(clusters("ae\u0301\r\n\n"), (List{"a", "e\u0301", "\r\n", "\n"}));
  EXPECT_EQ(clusters("\n\u0301"), (List{"\n", "\u0301"}));
  EXPECT_EQ(
      clusters("\u1100\u1161\u11a8\uac00\u11a8\uac01\u1161"),
      (List{"\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01", "\u1161"}));
  EXPECT_EQ(
      clusters("\U0001F1E6\U0001F1E7\U0001F1E8"), (List{"\U0001F1E6\U0001F1E7", "\U0001F1E8"}));
  EXPECT_EQ(
      clusters("\U0001F468\u200d\U0001F469\u200da"),
      (List{"\U0001F468\u200d\U0001F469\u200d", "a"}));
  EXPECT_EQ(clusters("\u0600a\u0903"), List{"\u0600a\u0903"});
  EXPECT_EQ(
      clusters("\u0915\u094d\u0937 \u0915\u0937"),
      (List{"\u0915\u094d\u0937", " ", "\u0915", "\u0937"}));
}

}  // namespace unicode_normalization_test
}  // namespace lockstep::text
