// ATen's flash attention on GPUs, of what would need a mask otherwise.
#pragma once

#include "ops/attention.h"

namespace lockstep::ops {

/// Whether ATen's kernel reads a key-value head for each query head that it serves, without copies.
bool takes_groups(int64_t backend);

/// Whether it leaves out by itself what a query does not see: keys behind its window, those of
/// other documents, and where there are more keys than queries. ATen's choice would want a mask of
/// all pairs.
bool flash_hides_by_itself(const Tensor& query, const Tensor& key, const AttentionOptions& options);

/// Where it does: the last query sees the last key, of the row or of its document. Heads are read
/// where they lie.
Tensor flash_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

}  // namespace lockstep::ops
