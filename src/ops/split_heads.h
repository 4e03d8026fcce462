// Splits a packed query-key-value projection into heads.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Splits packed [B, T, 3 H D] into views of query, key and value, [B, H, T, D] each. The backward
/// pass does not copy the three gradients if they are views of one packed tensor, which attention()
/// creates for such inputs.
std::array<Tensor, 3> split_heads(const Tensor& packed, int64_t head_dim);

/// Returns three tensors [B, H, T, D] as views of one uninitialized packed tensor [B, T, 3, H, D].
std::array<Tensor, 3> empty_packed_heads(const Tensor& like);

/// Returns true if the three tensors are views of one packed tensor.
bool are_packed_heads(const Tensor& query, const Tensor& key, const Tensor& value);

}  // namespace lockstep::ops
