// Tests of packing documents into rows (best-fit bins).
#include "data/bins.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "base/counter_random.h"
#include "base/error.h"

namespace lockstep::data {
namespace bins_test {

std::vector<Piece> pieces_of(const std::vector<int32_t>& lengths) {
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const int32_t tokens : lengths) {
    pieces.push_back({begin, tokens});
    begin += tokens;
  }
  return pieces;
}

std::vector<std::vector<int32_t>> lengths_of(const Bins& bins) {
  std::vector<std::vector<int32_t>> rows;
  for (int64_t row = 0; row < bins.rows(); ++row) {
    auto& lengths = rows.emplace_back();
    for (const Piece& piece : bins.row(row)) {
      lengths.push_back(piece.tokens);
    }
  }
  return rows;
}

TEST(Bins, TheLongestGoFirstAndEachWhereItFitsBest) {
  // 6 opens the first row and 5 the second, 4 fills the first, 3 and 2 fill the second, and 1 opens
  // a third.
  EXPECT_EQ(
      lengths_of(Bins(pieces_of({3, 4, 5, 6, 2, 1}), 10)),
      (std::vector<std::vector<int32_t>>{{3, 5, 2}, {4, 6}, {1}}));
  EXPECT_EQ(lengths_of(Bins(pieces_of({4}), 4)), (std::vector<std::vector<int32_t>>{{4}}));
  EXPECT_EQ(Bins({}, 4).rows(), 0);
  EXPECT_EQ(Bins().rows(), 0);
}

TEST(Bins, EveryPieceOnceInOrderAndFewRows) {
  for (const int64_t length : {17, 64, 1000}) {
    std::vector<int32_t> lengths;
    for (uint64_t i = 0; i < 3000; ++i) {
      const auto most = static_cast<uint64_t>(length);
      lengths.push_back(
          static_cast<int32_t>(1 + random_bits(7, i) % most % (i % 3 == 0 ? most : 13)));
    }
    const std::vector<Piece> pieces = pieces_of(lengths);
    const Bins bins(pieces, length);
    std::vector<Piece> all;
    int64_t first = -1;
    for (int64_t row = 0; row < bins.rows(); ++row) {
      const auto in_row = bins.row(row);
      int64_t tokens = 0;
      for (const Piece& piece : in_row) {
        tokens += piece.tokens;
        all.push_back(piece);
      }
      ASSERT_LE(tokens, length);
      ASSERT_GT(in_row.front().begin, first);  // rows are ordered by their first pieces
      first = in_row.front().begin;
      EXPECT_TRUE(std::is_sorted(in_row.begin(), in_row.end(), [](const Piece& a, const Piece& b) {
        return a.begin < b.begin;
      }));
    }
    std::sort(
        all.begin(), all.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    EXPECT_EQ(all, pieces);
    const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const int64_t least = (tokens + length - 1) / length;
    EXPECT_LE(bins.rows(), least + 2) << length;  // short pieces fill the space left by long ones
  }
}

TEST(Bins, APieceLongerThanARowIsAnError) {
  EXPECT_THROW(Bins(pieces_of({3, 5}), 4), Error);
  EXPECT_THROW(Bins(pieces_of({0}), 4), Error);
}

}  // namespace bins_test
}  // namespace lockstep::data
