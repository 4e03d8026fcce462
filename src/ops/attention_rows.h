// Row-wise softmax of explicit attention. Internal to ops.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Visible keys of each query of a tile. Row r of [n, queries, keys] is query r % queries, which
/// sees the keys [first, last) of the tile with last = first_last + r % queries and first =
/// max(last - window, 0). In packed rows, first is at least the start of the query's document.
struct Visible {
  int64_t first_last = 0;
  int64_t window = 0;  // 0: none
  Tensor starts = {};  // [rows, queries] int64, n a multiple of rows, relative to the tile's keys;
                       // undefined: none
  Tensor ends = {};    // of the same form: the end of the visible keys, instead of `last`, for
                       // bidirectional attention
  bool sees_all = false;  // every key is visible: bidirectional attention without documents
  Tensor sinks =
      {};  // [H], n a multiple of H: score of an additional key for head n % H; undefined: none
};

/// Replaces scores [n, queries, keys], contiguous, by softmax(scale * scores) over the visible
/// keys, and by zero elsewhere. Computes in float32 for every type. With sinks, returns their
/// probability, [n, queries] in float32 (float64 for float64 scores).
Tensor softmax_visible(Tensor& scores, double scale, const Visible& visible);

/// Overwrites the gradient of the probabilities with that of the scores: scale * p * (g - sum(g
/// p)).
void softmax_visible_backward(Tensor& gradient, const Tensor& probabilities, double scale);

}  // namespace lockstep::ops
