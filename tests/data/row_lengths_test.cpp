// Tests of padded row lengths.
#include "data/row_lengths.h"

#include "data_testing.h"

namespace lockstep::data {
namespace row_lengths_test {

TEST(RowLengths, AreMultiplesOfEightUpToTheMost) {
  EXPECT_EQ(padded_length(0, 64), 0);
  EXPECT_EQ(padded_length(2, 64), 8);
  EXPECT_EQ(padded_length(8, 64), 8);
  EXPECT_EQ(padded_length(9, 64), 16);
  EXPECT_EQ(padded_length(62, 63), 63);
  EXPECT_EQ(padded_length(64, 63), 64);  // includes the start token of the target
}

TEST(RowLengths, AreOfTheLongestOfAMicroBatch) {
  const TemporaryFolder folder;
  // Sources of 2 and 12 tokens; targets of 9 and 1, plus their start token.
  const auto set = TokenDataset::open(write_tokens(
      folder,
      {{{1, 9, 3, 4, 5, 6, 7, 8, 3, 4, 9}, 2}, {{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 9, 9}, 12}}));
  const SequenceView pairs(set, 20, Packing::kPairs, LongDocuments::kSplit, /*start=*/7);
  const PaddedLengths one = padded_lengths(pairs, 1);
  EXPECT_DOUBLE_EQ(one.expected.source, 12);
  EXPECT_DOUBLE_EQ(one.expected.tokens, 12);
  EXPECT_DOUBLE_EQ(one.longest.source, 16);
  EXPECT_DOUBLE_EQ(one.longest.tokens, 16);
  // With two draws, both are short with probability 1/4.
  EXPECT_DOUBLE_EQ(padded_lengths(pairs, 2).expected.source, 8 * 0.25 + 16 * 0.75);
  const PaddedLengths packed = padded_lengths(SequenceView(set, 5), 3);
  EXPECT_DOUBLE_EQ(packed.expected.tokens, 5);
  EXPECT_DOUBLE_EQ(packed.longest.source, 0);
}

}  // namespace row_lengths_test
}  // namespace lockstep::data
