// Key-value cache for generation.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/model_config.h"

namespace lockstep::nn {

using at::Tensor;

/// Stores the keys and values of each layer. A layer with a sliding window stores only the last
/// window - 1 positions, which limits its memory.
class KeyValueCache {
 public:
  explicit KeyValueCache(const model::ModelConfig& config);

  /// Returns the number of positions in the cache, which is the position of the next token.
  int64_t length() const { return length_; }
  /// Appends keys and values [B, Hkv, T, D]. Returns all keys and values that the layer may attend
  /// to, [B, Hkv, S, D] each, in order; the last T are the new ones.
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& key, const Tensor& value);
  /// Returns the keys and values of the encoder output for a decoder layer. Computed in the first
  /// call and cached.
  const std::pair<Tensor, Tensor>& source(
      int64_t layer, const std::function<std::pair<Tensor, Tensor>()>& make);
  /// Advances the length. Must be called once per forward pass, after its blocks.
  void advance(int64_t tokens) { length_ += tokens; }
  /// Keeps the batch rows `rows` (int64 [N]), in that order, and removes all other rows.
  void keep_rows(const Tensor& rows);
  /// Copies the rows `from` to the rows `to` (disjoint, int64 [N] each), then keeps the first
  /// `kept` rows of the batch. Removing a few rows thus moves only a few other rows. Only for
  /// decoders.
  void move_rows(const Tensor& from, const Tensor& to, int64_t kept);
  /// Returns the memory in use, in bytes.
  int64_t bytes() const;

 private:
  struct Entry {
    Tensor keys, values;  // [B, Hkv, capacity, D]
    int64_t begin = 0, end = 0;
    int64_t window = 0;
    std::pair<Tensor, Tensor> source;  // [B, H, S, D]
  };
  std::vector<Entry> entries_;
  int64_t length_ = 0;
};

}  // namespace lockstep::nn
