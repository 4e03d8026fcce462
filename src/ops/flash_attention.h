// ATen's flash attention on GPUs for cases that would otherwise need a mask.
#pragma once

#include "ops/attention.h"

namespace lockstep::ops {

/// True if this ATen backend supports grouped-query attention without copying key-value heads.
bool takes_groups(int64_t backend);

/// True if flash attention supports these inputs without a mask: sliding windows, packed documents,
/// or more keys than queries. ATen's own dispatch would need a mask of all pairs.
bool flash_hides_by_itself(const Tensor& query, const Tensor& key, const AttentionOptions& options);

/// Computes such an attention; the last query sees the last key of the row or of its document.
/// Heads are read in place.
Tensor flash_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

}  // namespace lockstep::ops
