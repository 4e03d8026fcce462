#include "data/masking.h"

#include <map>

#include <gtest/gtest.h>

#include "data/sequences.h"

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

/// Ids from 100 on, between special tokens; every seventh has no label.
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
  // A shorter row has the same places picked.
  Row begin{
      {plain.ids.begin(), plain.ids.begin() + 20},
      {plain.labels.begin(), plain.labels.begin() + 20}};
  begin = masked(masking(), 5, begin);
  EXPECT_TRUE(std::equal(begin.ids.begin(), begin.ids.end(), row.ids.begin()));
  EXPECT_TRUE(std::equal(begin.labels.begin(), begin.labels.end(), row.labels.begin()));
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
