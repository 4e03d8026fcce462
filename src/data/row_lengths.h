// Padded lengths of a micro-batch's rows.
#pragma once

#include <cstdint>

#include "data/sequences.h"

namespace lockstep::data {

/// Rows are padded to the next multiple of eight of the longest, but not beyond `most` unless the
/// longest is: matrix units process multiples of eight without loss, and matrix libraries create
/// and cache kernels for every length.
int64_t padded_length(int64_t longest, int64_t most);

/// Tokens of a row and of its source (0 if rows have none).
struct RowLengths {
  double tokens = 0, source = 0;
};

struct PaddedLengths {
  RowLengths
      expected;  // average padded length; of a packed view a row's share
  RowLengths longest;  // as one with the longest rows is
};

/// The share of padding in `view`'s micro-batches of `rows` rows.
double padding_of(const SequenceView& view, int64_t rows);

/// For random micro-batches of `rows` rows. Samples at most 4,096 rows, evenly spaced.
PaddedLengths padded_lengths(const SequenceView& view, int64_t rows);

}  // namespace lockstep::data
