// Packs documents into rows of limited length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// A document, or a row-sized part of a longer one: tokens [begin, begin + tokens) of the stream.
struct Piece {
  int64_t begin = 0;
  int32_t tokens = 0;
  bool operator==(const Piece&) const = default;
};

/// Assignment of pieces to rows. The pieces of a row are in stream order, and the rows are in the
/// order of their first pieces.
class Bins {
 public:
  Bins() = default;
  /// Packs the pieces by best fit decreasing (Johnson, "Near-optimal bin packing algorithms",
  /// 1973), which needs at most 11/9 of the minimum number of rows. Each piece is added to the row
  /// in which it leaves the least room; if several rows are equal, to the first of them. If it fits
  /// in no row, a new row is opened. Pieces must be in stream order and have at most `length`
  /// tokens. O(n log length).
  Bins(std::vector<Piece> pieces, int64_t length);

  int64_t rows() const { return static_cast<int64_t>(first_.size()) - 1; }
  std::span<const Piece> row(int64_t index) const;

 private:
  std::vector<Piece> pieces_;
  std::vector<int64_t> first_{0};  // offset of each row in pieces_, and number of pieces
};

}  // namespace lockstep::data
