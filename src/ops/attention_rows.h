// The row-wise parts of explicit attention: internal to ops.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Which keys of a tile each query sees: row r of [n, queries, keys] is query r % queries, which
/// sees the keys [first, last) of the tile with last = first_last + r % queries, and first = last -
/// window (0 or more). Where a row holds several documents, first is also where the query's own
/// begins.
struct Visible {
  int64_t first_last = 0;
  int64_t window = 0;  // 0: none
  Tensor starts = {};  // [rows, queries] int64, n a multiple of rows, in keys of the tile; or none
  Tensor ends = {};    // likewise, in place of `last`: where keys behind a query are seen too
  bool sees_all = false;  // the same without documents: every key
  Tensor sinks = {};      // [H], n a multiple: the score of a key more, of the head n % H; or none
};

/// scores [n, queries, keys], contiguous, become softmax(scale * scores) over the keys that are
/// seen, zero elsewhere. In float32 inside, whatever the type. Returns the probability of the
/// sinks, [n, queries] in float32 (float64 of float64), where there are any.
Tensor softmax_visible(Tensor& scores, double scale, const Visible& visible);

/// The gradient of the scores from that of the probabilities, which it overwrites:
/// scale * p * (g - sum(g p)).
void softmax_visible_backward(Tensor& gradient, const Tensor& probabilities, double scale);

}  // namespace lockstep::ops
