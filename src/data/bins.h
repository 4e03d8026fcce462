// Documents put together in rows of at most so many tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// A document, or a part of one that is longer than a row: tokens [begin, begin + tokens) of the
/// stream.
struct Piece {
  int64_t begin = 0;
  int32_t tokens = 0;
  bool operator==(const Piece&) const = default;
};

/// Pieces in rows. Each row's are in the order of the stream, and the rows in that of their first
/// pieces.
class Bins {
 public:
  Bins() = default;
  /// Best fit, longest first (Johnson, "Near-optimal bin packing algorithms", 1973: at most 11/9 of
  /// the fewest rows): each piece goes to the row that it leaves the least room in, the
  /// first of several, a new one if it fits in none. A function of the pieces alone, which are in
  /// the order of the stream and have at most `length` tokens. O(n log length).
  Bins(std::vector<Piece> pieces, int64_t length);

  int64_t rows() const { return static_cast<int64_t>(first_.size()) - 1; }
  std::span<const Piece> row(int64_t index) const;

 private:
  std::vector<Piece> pieces_;
  std::vector<int64_t> first_{0};  // of each row in pieces_, and their number
};

}  // namespace lockstep::data
