// Row-wise masked softmax for attention with explicit scores. Internal to ops.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Visible keys of each query of a tile. Row r of [n, queries, keys] belongs to query r % queries.
/// The keys [first, last) of the tile are visible to it, where last = first_last + r % queries and
/// first = max(last - window, 0). In packed rows, first is at least the start of the query's
/// document.
struct Visible {
  int64_t first_last = 0;
  int64_t window = 0;     // 0: no window
  Tensor starts = {};     // [rows, queries] int64, relative to the tile's keys; n is a multiple of
                          // rows; undefined: no documents
  Tensor ends = {};       // same shape: end of the visible keys, which replaces `last` in
                          // bidirectional attention
  bool sees_all = false;  // all keys are visible: bidirectional attention without documents
  Tensor sinks = {};      // [H]; n is a multiple of H: score of an additional key for head n % H;
                          // undefined: no sinks
};

/// Replaces contiguous scores [n, queries, keys] with softmax(scale * scores) for visible keys and
/// with zero for others. Computes in float32 for every type. With sinks, returns their
/// probabilities: float32 [n, queries], or float64 for float64 scores.
Tensor softmax_visible(Tensor& scores, double scale, const Visible& visible);

/// Replaces the gradient of the probabilities with that of the scores: scale * p * (g - sum(g p)).
void softmax_visible_backward(Tensor& gradient, const Tensor& probabilities, double scale);

}  // namespace lockstep::ops
