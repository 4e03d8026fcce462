// Layout of a micro-batch's documents in rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

struct DocumentPlace {
  int64_t row = 0, begin = 0;
  bool operator==(const DocumentPlace&) const = default;
};

struct PackedRows {
  int64_t rows = 0, length = 0;
  std::vector<DocumentPlace> places;  // of each document
};

/// Packs documents of these lengths into rows of at most `most` tokens (or of the longest, if that
/// is more): of the possible row lengths it takes the one with the least padding, the shortest of
/// several. Depends only on the lengths and their order.
PackedRows pack_rows(std::span<const int64_t> tokens, int64_t most);

/// One document per row.
PackedRows rows_of_one(std::span<const int64_t> tokens, int64_t most);

}  // namespace lockstep::data
