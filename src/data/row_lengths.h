// Padded lengths of a micro-batch's rows.
#pragma once

#include <cstdint>

#include "data/sequences.h"

namespace lockstep::data {

/// Returns the padded length of rows: the longest row rounded up to a multiple of eight, but not
/// beyond `most` unless the row itself is longer. Matrix units process multiples of eight
/// efficiently, and matrix libraries create and cache kernels per length.
int64_t padded_length(int64_t longest, int64_t most);

/// Tokens of a row and of its source (0 if rows have none).
struct RowLengths {
  double tokens = 0, source = 0;
};

struct PaddedLengths {
  RowLengths expected;  // average padded length; for a packed view, the average per document
  RowLengths longest;   // padded length of a micro-batch with the longest rows
};

/// Returns the fraction of padding in `view`'s micro-batches of `rows` rows.
double padding_of(const SequenceView& view, int64_t rows);

/// Estimates lengths for random micro-batches of `rows` rows from at most 4,096 evenly spaced rows.
PaddedLengths padded_lengths(const SequenceView& view, int64_t rows);

}  // namespace lockstep::data
