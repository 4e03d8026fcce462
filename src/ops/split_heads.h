// A packed projection of queries, keys and values, taken apart.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// packed [B, T, 3 H D] -> query, key and value, [B, H, T, D] each: views. In the backward pass the
/// three gradients take no copy where they lie in one packed tensor, as attention() makes them for
/// such views.
std::array<Tensor, 3> split_heads(const Tensor& packed, int64_t head_dim);

/// Three tensors [B, H, T, D] in one uninitialised packed tensor [B, T, 3, H, D].
std::array<Tensor, 3> empty_packed_heads(const Tensor& like);

/// Whether the three lie so.
bool are_packed_heads(const Tensor& query, const Tensor& key, const Tensor& value);

}  // namespace lockstep::ops
