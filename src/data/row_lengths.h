// How long the rows of a micro-batch are padded.
#pragma once

#include <cstdint>

#include "data/sequences.h"

namespace lockstep::data {

/// Rows whose longest has so many tokens are padded to the next multiple of eight, but not beyond
/// `most`, unless the longest is: matrix units take multiples of eight without loss, and matrix
/// libraries make and keep kernels for every length that they meet.
int64_t padded_length(int64_t longest, int64_t most);

/// Tokens of a row and of its source (0 where rows have none).
struct RowLengths {
  double tokens = 0, source = 0;
};

struct PaddedLengths {
  RowLengths
      expected;  // as a micro-batch is padded on average; of a packed view a row's share of it
  RowLengths longest;  // as one with the longest rows is
};

/// The share of `view`'s micro-batches of `rows` rows that is padding.
double padding_of(const SequenceView& view, int64_t rows);

/// Of micro-batches of `rows` rows, drawn at random. Looks at 4,096 rows at most, evenly spaced.
PaddedLengths padded_lengths(const SequenceView& view, int64_t rows);

}  // namespace lockstep::data
