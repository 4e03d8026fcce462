// ATen's flash attention on GPUs, for cases that would otherwise require a mask.
#pragma once

#include "ops/attention.h"

namespace lockstep::ops {

/// Returns true if this ATen backend supports grouped-query attention without copies of the
/// key-value heads.
bool takes_groups(int64_t backend);

/// Returns true if flash attention supports these inputs without a mask: sliding windows, packed
/// documents, or more keys than queries. ATen's own dispatch would require a mask of all pairs for
/// them.
bool flash_hides_by_itself(const Tensor& query, const Tensor& key, const AttentionOptions& options);

/// Computes attention for such inputs. The last query is aligned with the last key of the row or of
/// its document. Heads are not copied.
Tensor flash_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

}  // namespace lockstep::ops
