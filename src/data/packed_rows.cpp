// Packs the documents of a micro-batch into rows.
#include "data/packed_rows.h"

#include <algorithm>

#include "data/bins.h"
#include "data/row_lengths.h"

namespace lockstep::data {
namespace {

constexpr int64_t kLeastTokens = 2;  // per row: one to predict, and one before it
constexpr int64_t kMostTried = 64;   // maximum number of row lengths to try

int64_t longest_of(std::span<const int64_t> tokens) {
  return std::max(kLeastTokens, tokens.empty() ? 0 : *std::ranges::max_element(tokens));
}

}  // namespace

PackedRows rows_of_one(std::span<const int64_t> tokens, int64_t most) {
  PackedRows packed;
  packed.rows = std::max<int64_t>(1, std::ssize(tokens));
  packed.length = padded_length(longest_of(tokens), most);
  for (int64_t i = 0; i < std::ssize(tokens); ++i) {
    packed.places.push_back({i, 0});
  }
  return packed;
}

PackedRows pack_rows(std::span<const int64_t> tokens, int64_t most) {
  PackedRows best = rows_of_one(tokens, most);
  std::vector<Piece> pieces;  // `begin` is the document's index
  for (const int64_t count : tokens) {
    pieces.push_back({std::ssize(pieces), static_cast<int32_t>(std::max<int64_t>(1, count))});
  }
  const int64_t longest = best.length;
  const int64_t step = padded_length((most - longest) / kMostTried + 1, most);
  for (int64_t room = longest; std::ssize(pieces) > 1;
       room = std::min(room + step, std::max(most, longest))) {
    const Bins bins(pieces, room);
    PackedRows packed{bins.rows(), kLeastTokens, std::vector<DocumentPlace>(pieces.size())};
    for (int64_t row = 0; row < bins.rows(); ++row) {
      int64_t begin = 0;
      for (const Piece& piece : bins.row(row)) {
        packed.places[static_cast<size_t>(piece.begin)] = {row, begin};
        begin += piece.tokens;
      }
      packed.length = std::max(packed.length, begin);
    }
    packed.length = padded_length(packed.length, most);
    if (packed.rows * packed.length < best.rows * best.length) {
      best = std::move(packed);
    }
    if (room >= most || bins.rows() == 1) {
      break;
    }
  }
  return best;
}

}  // namespace lockstep::data
