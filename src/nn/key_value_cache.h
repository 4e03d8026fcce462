// Keys and values of the tokens that generation has seen.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/model_config.h"

namespace lockstep::nn {

using at::Tensor;

/// One entry a layer. A layer with a sliding window keeps the last window - 1 positions, so that
/// its memory is bounded.
class KeyValueCache {
 public:
  explicit KeyValueCache(const model::ModelConfig& config);

  /// The positions seen so far: the position of the next token.
  int64_t length() const { return length_; }
  /// Appends [B, Hkv, T, D] and returns all that a layer may attend to, [B, Hkv, S, D] each, in
  /// order; the last T are those given.
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& key, const Tensor& value);
  /// The keys and values of what the encoder read, for a layer of the decoder: made at the first
  /// call, kept for the others.
  const std::pair<Tensor, Tensor>& source(
      int64_t layer, const std::function<std::pair<Tensor, Tensor>()>& make);
  /// Called once a forward pass, after its blocks.
  void advance(int64_t tokens) { length_ += tokens; }
  /// Keeps the rows [N] int64 of the batch, in that order, and forgets the others.
  void keep_rows(const Tensor& rows);
  /// Keeps the first `kept` rows of the batch, after the rows `from` have been copied to the rows
  /// `to`, int64 [N] each, none of which is the same. So who has no further use for some rows moves
  /// few of the others. Of decoders alone.
  void move_rows(const Tensor& from, const Tensor& to, int64_t kept);
  /// The bytes that it holds.
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
