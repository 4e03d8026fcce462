// Places the documents of a micro-batch in rows.
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
  std::vector<DocumentPlace> places;  // one per document
};

/// Packs documents of these lengths into rows of at most `most` tokens, or of the length of the
/// longest document if that is larger. Selects the row length with the least padding; if several
/// are equal, the shortest. The result depends only on the lengths and their order.
PackedRows pack_rows(std::span<const int64_t> tokens, int64_t most);

/// Places one document per row.
PackedRows rows_of_one(std::span<const int64_t> tokens, int64_t most);

}  // namespace lockstep::data
