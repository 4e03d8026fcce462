#include "data/row_lengths.h"

#include "data_testing.h"

namespace lockstep::data {
namespace {

TEST(RowLengths, AreOfTheLongestOfAMicroBatch) {
  const TemporaryFolder folder;
  // Sources of 2 and 4 tokens; targets of 3 and 1, and the one that starts them.
  const auto set =
      TokenDataset::open(write_tokens(folder, {{{1, 9, 3, 4, 9}, 2}, {{1, 2, 3, 9, 9}, 4}}));
  const SequenceView pairs(set, 8, Packing::kPairs, LongDocuments::kSplit, /*start=*/7);
  const PaddedLengths one = padded_lengths(pairs, 1);
  EXPECT_DOUBLE_EQ(one.expected.source, 3);
  EXPECT_DOUBLE_EQ(one.expected.tokens, 3);
  EXPECT_DOUBLE_EQ(one.longest.source, 4);
  EXPECT_DOUBLE_EQ(one.longest.tokens, 4);
  // Of two draws all are short one time in four.
  EXPECT_DOUBLE_EQ(padded_lengths(pairs, 2).expected.source, 2 * 0.25 + 4 * 0.75);
  const PaddedLengths packed = padded_lengths(SequenceView(set, 5), 3);
  EXPECT_DOUBLE_EQ(packed.expected.tokens, 5);
  EXPECT_DOUBLE_EQ(packed.longest.source, 0);
}

}  // namespace
}  // namespace lockstep::data
