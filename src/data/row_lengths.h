// Padded lengths of the rows of a micro-batch.
#pragma once

#include <cstdint>

#include "data/sequences.h"

namespace lockstep::data {

/// Returns the padded length of rows: the length of the longest row, rounded up to a multiple of
/// eight. The result does not exceed `most` unless the row itself is longer. Matrix units process
/// multiples of eight efficiently, and matrix libraries create and cache kernels for each length.
int64_t padded_length(int64_t longest, int64_t most);

/// Number of tokens in a row and in its source (0 if rows have no sources).
struct RowLengths {
  double tokens = 0, source = 0;
};

struct PaddedLengths {
  RowLengths expected;  // average padded length; for a packed view, the average per document
  RowLengths longest;   // padded length of a micro-batch that contains the longest rows
};

/// Returns the fraction of padding in micro-batches of `rows` rows.
double padding_of(const SequenceView& view, int64_t rows);

/// Estimates the lengths for random micro-batches of `rows` rows. Reads at most 4,096 evenly spaced
/// rows.
PaddedLengths padded_lengths(const SequenceView& view, int64_t rows);

}  // namespace lockstep::data
