// Tests of packing several documents into one row.
#include "data/packed_rows.h"

#include "base/counter_random.h"
#include "data/labelled_rows.h"
#include "data/loader.h"
#include "data/token_dataset.h"
#include "data_testing.h"

namespace lockstep::data {
namespace packed_rows_test {

using Places = std::vector<DocumentPlace>;

TEST(PackedRows, HaveTheLengthThatLeavesTheLeastPadding) {
  // Rows of 16 contain 8 + 8, 8 + 7 and 16. Rows of 32 would need more padding.
  const PackedRows packed = pack_rows(std::vector<int64_t>{8, 16, 8, 7, 8}, 64);
  EXPECT_EQ(packed.rows * packed.length, 48);
  EXPECT_EQ(packed.length, 16);
  EXPECT_EQ(packed.places, (Places{{0, 0}, {1, 0}, {0, 8}, {2, 0}, {2, 7}}));
}

TEST(PackedRows, AreOfOneDocumentWhereNoOtherFits) {
  const PackedRows packed = pack_rows(std::vector<int64_t>{5, 6, 7}, 7);
  EXPECT_EQ(packed.rows, 3);
  EXPECT_EQ(packed.length, 7);
  const PackedRows one = pack_rows(std::vector<int64_t>{1}, 64);
  EXPECT_EQ(one.rows, 1);
  EXPECT_EQ(one.length, 8);
  const PackedRows none = pack_rows({}, 64);
  EXPECT_EQ(none.rows, 1);
  EXPECT_TRUE(none.places.empty());
}

/// For arbitrary lengths: documents do not overlap, no row is too long, and there is never more
/// padding than with one document per row.
TEST(PackedRows, HoldEachDocumentOnce) {
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const auto draw = [&](uint64_t at, uint64_t below) {
      return static_cast<int64_t>(random_bits(trial, at) % below);
    };
    const int64_t most = 3 + draw(0, 90);
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < 1 + draw(1, 40); ++i) {
      tokens.push_back(1 + draw(2 + static_cast<uint64_t>(i), static_cast<uint64_t>(most)));
    }
    const PackedRows packed = pack_rows(tokens, most), plain = rows_of_one(tokens, most);
    EXPECT_LE(packed.rows * packed.length, plain.rows * plain.length);
    EXPECT_LE(packed.length, most);
    std::vector<bool> taken(static_cast<size_t>(packed.rows * packed.length));
    for (size_t i = 0; i < tokens.size(); ++i) {
      const DocumentPlace place = packed.places.at(i);
      ASSERT_LE(place.begin + tokens[i], packed.length);
      for (int64_t t = 0; t < tokens[i]; ++t) {
        const auto at = static_cast<size_t>(place.row * packed.length + place.begin + t);
        ASSERT_FALSE(taken.at(at));
        taken[at] = true;
      }
    }
  }
}

/// Rows of a classifier.
TEST(PackedRows, AreReadWithTheirClassesInTheOrderOfTheDraws) {
  const TemporaryFolder folder;
  const std::vector<RowIds> ids{{{5, 6, 7}}, {{8}}, {{258, 258}}, {{4, 3, 258}}};
  SequenceView view(
      TokenDataset::open(write_rows(ids, folder.path(), "a tokenizer", 259, 258)),
      6,
      {1, 0, kIgnored, 2});
  view.set_packed(true);
  const MicroBatch batch = make_micro_batch(view, {{3, 10}, {0, 11}, {2, 12}, {1, 13}});
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 6);
  EXPECT_EQ(batch.ids, (std::vector<int64_t>{4, 3, 258, 5, 6, 7, 258, 258, 8, 258, 258, 258}));
  EXPECT_EQ(batch.places, (Places{{0, 0}, {0, 3}, {1, 0}, {1, 2}}));
  EXPECT_EQ(batch.documents, (std::vector<int64_t>{0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3}));
  EXPECT_EQ(batch.document_starts, (std::vector<int64_t>{0, 0, 0, 3, 3, 3, 0, 0, 2, 3, 3, 3}));
  EXPECT_EQ(batch.classes, (std::vector<int64_t>{2, 1, kIgnored, 0}));
  EXPECT_EQ(batch.positions, (std::vector<int64_t>{1, 2, 0, 0}));  // position within its document
  EXPECT_EQ(batch.row_tokens, (std::vector<int64_t>{6, 3}));
  EXPECT_EQ(batch.document_samples, (std::vector<int64_t>{10, 11, 12, 13}));
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{10, 12}));
  const MicroBatch empty = make_micro_batch(view, {});
  EXPECT_EQ(empty.classes, std::vector<int64_t>{kIgnored});
  EXPECT_EQ(empty.documents, std::vector<int64_t>(6, 0));
}

/// Encoder rows: each document starts with its own first token and has its own segments.
TEST(PackedRows, OfAnEncoderTellSegments) {
  const TemporaryFolder folder;
  const std::vector<RowIds> ids{{{1, 5, 2, 6, 7, 2}, 3}, {{1, 8, 2}}};
  SequenceView view(
      TokenDataset::open(write_rows(ids, folder.path(), "a tokenizer", 259, 258)), 9, {1, 0});
  view.set_encoder({.tells_segments = true});
  view.set_packed(true);
  const MicroBatch batch = make_micro_batch(view, {{1, 0}, {0, 1}});
  EXPECT_EQ(batch.rows, 1);
  EXPECT_EQ(batch.length, 9);
  EXPECT_EQ(batch.token_types, (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(batch.document_starts, (std::vector<int64_t>{0, 0, 0, 3, 3, 3, 3, 3, 3}));
}

}  // namespace packed_rows_test
}  // namespace lockstep::data
