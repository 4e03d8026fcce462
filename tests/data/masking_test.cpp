// Tests of masked language modeling: choice and replacement of masked tokens.
#include "data/masking.h"

#include <map>

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/sequences.h"
#include "text/tokenizer.h"

namespace lockstep::data {
namespace masking_test {

Masking masking() {
  Masking result;
  result.mask = 3;
  result.vocabulary = 1000;
  result.specials.assign(1000, false);
  result.specials[1] = result.specials[2] = result.specials[3] = true;
  result.seed = 7;
  return result;
}

struct Row {
  std::vector<int64_t> ids, labels;
  bool operator==(const Row&) const = default;
};

/// Row of ids from 100 between special tokens; every seventh token has no label.
Row plain_row(size_t length) {
  Row row;
  for (size_t i = 0; i < length; ++i) {
    row.ids.push_back(i == 0 ? 1 : i + 1 == length ? 2 : 100 + static_cast<int64_t>(i % 800));
    row.labels.push_back(i % 7 == 3 ? kIgnored : row.ids.back());
  }
  return row;
}

Row masked(const Masking& masking, int64_t sample, Row row) {
  masking.apply(sample, row.ids, row.labels);
  return row;
}

TEST(Masking, PicksTheShareAndReplacesByTheShares) {
  constexpr size_t kLength = 100000;
  const Row plain = plain_row(kLength), row = masked(masking(), 5, plain);
  int64_t could = 0, picked = 0, hidden = 0, kept = 0;
  for (size_t i = 0; i < kLength; ++i) {
    const bool has_label = plain.labels[i] != kIgnored && plain.ids[i] > 3;
    could += has_label ? 1 : 0;
    if (row.labels[i] == kIgnored) {
      EXPECT_EQ(row.ids[i], plain.ids[i]) << i;
      continue;
    }
    ASSERT_TRUE(has_label) << i;
    ASSERT_EQ(row.labels[i], plain.ids[i]) << i;
    ++picked;
    hidden += row.ids[i] == 3 ? 1 : 0;
    kept += row.ids[i] == plain.ids[i] ? 1 : 0;
    ASSERT_GE(row.ids[i], 0);
    ASSERT_LT(row.ids[i], 1000);
  }
  const auto share = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  EXPECT_NEAR(share(picked, could), 0.15, 0.01);
  EXPECT_NEAR(share(hidden, picked), 0.8, 0.02);
  EXPECT_NEAR(share(kept, picked), 0.1, 0.02);
}

TEST(Masking, HangsOnTheSeedTheSampleAndThePlaceAlone) {
  const Row plain = plain_row(40);
  const Row row = masked(masking(), 5, plain);
  EXPECT_EQ(masked(masking(), 5, plain), row);
  EXPECT_NE(masked(masking(), 6, plain), row);
  Masking other = masking();
  other.seed = 8;
  EXPECT_NE(masked(other, 5, plain), row);
  // A prefix of the row has the same positions selected.
  Row begin{
      {plain.ids.begin(), plain.ids.begin() + 20},
      {plain.labels.begin(), plain.labels.begin() + 20}};
  begin = masked(masking(), 5, begin);
  EXPECT_TRUE(std::equal(begin.ids.begin(), begin.ids.end(), row.ids.begin()));
  EXPECT_TRUE(std::equal(begin.labels.begin(), begin.labels.end(), row.labels.begin()));
}

TEST(Masking, PicksTheTokensOfAWordTogether) {
  Masking words = masking();
  words.probability = 0.3;
  words.continuing.assign(1000, false);
  words.continuing[50] = words.continuing[51] = true;
  // whole words: 60 50 51 | 60 | special 50 | no label, 51 | 61 50
  const Row plain{
      {1, 60, 50, 51, 60, 2, 50, 60, 51, 61, 50, 2},
      {1, 60, 50, 51, 60, 2, 50, kIgnored, 51, 61, 50, 2}};
  const std::vector<std::vector<size_t>> groups{{1, 2, 3}, {4}, {6}, {8}, {9, 10}};
  std::vector<int64_t> picked(groups.size());
  constexpr int64_t kSamples = 4000;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const Row row = masked(words, sample, plain);
    for (size_t group = 0; group < groups.size(); ++group) {
      const bool is_picked = row.labels[groups[group].front()] != kIgnored;
      picked[group] += is_picked ? 1 : 0;
      for (const size_t place : groups[group]) {
        ASSERT_EQ(row.labels[place], is_picked ? plain.ids[place] : kIgnored) << sample;
      }
    }
    for (const size_t place : {0, 5, 7, 11}) {
      ASSERT_EQ(row.labels[place], kIgnored) << sample;
    }
  }
  for (const int64_t count : picked) {
    EXPECT_NEAR(static_cast<double>(count) / kSamples, 0.3, 0.04);
  }
}

TEST(Masking, WordsAreMarkedByTheVocabulary) {
  const auto continuing = [](const std::string& vocabulary) {
    const std::string json =
        R"({"version": "1.0", "added_tokens": [], "model": {"type": "WordPiece", "unk_token": "[UNK]",
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": )";
    return continuing_tokens(
        *text::Tokenizer::parse({"a test", {{"tokenizer.json", json + vocabulary + "}}"}}}));
  };
  EXPECT_EQ(
      continuing(R"({"[UNK]": 0, "play": 1, "##ing": 2, "##": 3})"),
      (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(
      continuing(R"({"[UNK]": 0, "\u0120play": 1, "ing": 2, "\u010a": 3, "\u2581x": 4})"),
      (std::vector<bool>{true, false, true, false, false}));
  try {
    (void)continuing(R"({"[UNK]": 0, "play": 1})");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
  }
}

TEST(Masking, HidesEveryTokenWhereItIsAskedTo) {
  Masking all = masking();
  all.probability = all.mask_share = 1;
  all.random_share = 0;
  const Row row = masked(all, 0, {{1, 50, 60, 2}, {1, 50, 60, 2}});
  EXPECT_EQ(row, (Row{{1, 3, 3, 2}, {kIgnored, 50, 60, kIgnored}}));
}

}  // namespace masking_test
}  // namespace lockstep::data
