// How long the rows of a micro-batch are: each is padded to its longest.
#pragma once

#include <cstdint>

#include "data/sequences.h"

namespace lockstep::data {

/// Tokens of a row and of its source (0 where rows have none).
struct RowLengths {
  double tokens = 0, source = 0;
};

struct PaddedLengths {
  RowLengths expected;  // of a micro-batch, on average
  RowLengths longest;   // of all rows
};

/// Of micro-batches of `rows` rows, drawn at random. Looks at 4,096 rows at most, evenly spaced.
PaddedLengths padded_lengths(const SequenceView& view, int64_t rows);

}  // namespace lockstep::data
