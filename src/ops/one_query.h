// Attention of one query for each head, as generation has it a token at a time. Internal to ops.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// softmax(scale * query key^T) value: query [B, H, 1, D], key and value [B, Hkv, S, D], H a
/// multiple of Hkv, float32, float64 or bfloat16 (summed in float32) in host memory. Keys and
/// values are read where they lie, each once for all query heads that it serves: ATen's kernel
/// takes a copy of them for each. Returns [B, H, 1, D]. No gradient.
Tensor one_query_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, double scale);

}  // namespace lockstep::ops
