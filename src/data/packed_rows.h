// How the documents of a micro-batch lie in its rows.
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

/// Documents of so many tokens each in rows of at most `most`, or of the longest where that is
/// more: of the lengths that rows can have, that which leaves the least padding, the shortest of
/// several. A function of the lengths and their order alone.
PackedRows pack_rows(std::span<const int64_t> tokens, int64_t most);

/// Each in a row of its own.
PackedRows rows_of_one(std::span<const int64_t> tokens, int64_t most);

}  // namespace lockstep::data
