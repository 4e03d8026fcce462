// Attention with one query per head, for generating one token at a time. Internal to ops.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Returns softmax(scale * query key^T) value as [B, H, 1, D]. query is [B, H, 1, D]; key and value
/// are [B, Hkv, S, D]; H is a multiple of Hkv. The tensors are float32, float64 or bfloat16 (summed
/// in float32) in host memory. Keys and values are read in place, once for all query heads that
/// share them; ATen's kernel needs a copy per query head. Does not support autograd.
Tensor one_query_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, double scale);

}  // namespace lockstep::ops
