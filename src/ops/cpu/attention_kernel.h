// Attention loops over plain pointers for processors with AVX-512: causal attention over whole
// sequences, or attention to all of some keys. Internal to ops.
//
// A loop processes 64 queries of a head at a time against all their visible keys. Scores, softmax
// and products stay in the level-2 cache. The backward pass recomputes the probabilities from the
// log of the sum of their exponentials (Dao et al., "FlashAttention", 2022, without blocks of keys,
// because a row of scores fits in the cache).
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Strides in elements: element [batch, head, position, 0] of a tensor is at the sum of each index
/// times its stride.
struct HeadStrides {
  int64_t batch = 0, head = 0, position = 0;
};

struct AttentionSizes {
  int64_t heads = 0, kv_heads = 0, length = 0, keys = 0,
          size = 0;       // numbers of query heads, key-value heads, queries and keys; head size
  bool sees_all = false;  // true: every key is visible; false: causal, with equal numbers of
                          // queries and keys
  int64_t window = 0;     // sliding window of causal attention; 0: all earlier keys
  float scale = 1;
};

/// Arrays of the forward pass, all of one type. Queries and outputs have `heads` heads; keys and
/// values have kv_heads.
struct AttentionForward {
  const void *query = nullptr, *key = nullptr, *value = nullptr;
  HeadStrides query_at, key_at, value_at, out_at;
  void* out = nullptr;
  float* log_sum =
      nullptr;  // [batch, heads, length]: log of the sum of the exponentials of each query's scores
  // [keys, rounded up to 64]: key j is visible only to the queries [j, seen_until[j]). Null:
  // visible to all later queries. Requires a single batch element and no window.
  const int32_t* seen_until = nullptr;
};

struct AttentionBackward {
  AttentionForward forward;  // arrays of the forward pass, of which `out` is read
  const void* out_gradient = nullptr;
  HeadStrides out_gradient_at;
  void *query_gradient = nullptr, *key_gradient = nullptr, *value_gradient = nullptr;
  HeadStrides query_gradient_at, key_gradient_at, value_gradient_at;
};

/// Loops for one type and instruction set. A job is one key-value head of one batch element; jobs
/// are numbered by batch element, then by head.
struct AttentionLoops {
  /// Returns the number of scratch bytes per thread. The memory must be aligned to 64 bytes.
  int64_t (*scratch_bytes)(const AttentionSizes&);
  void (*forward)(
      const AttentionSizes&, const AttentionForward&, int64_t first, int64_t last, void* scratch);
  void (*backward)(
      const AttentionSizes&, const AttentionBackward&, int64_t first, int64_t last, void* scratch);
};

extern const AttentionLoops kAttentionFloat;     // AVX-512
extern const AttentionLoops kAttentionBfloat16;  // AVX-512 and AVX512-BF16
extern const AttentionLoops kAttentionAmx;       // AVX-512 and AMX-BF16

}  // namespace lockstep::ops::kernel
