// Attention loops for processors with AVX-512, over plain pointers: causal over whole sequences, or
// over all of some keys. Internal to ops.
//
// A loop handles 64 queries of a head at a time, against all keys that they see. Scores, softmax
// and products stay in the level-2 cache. The backward pass recomputes the probabilities from the
// log of the sum of their exponentials (Dao et al., "FlashAttention", 2022, without its blocks of
// keys, because a row of scores fits).
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Strides, in elements, to element [batch, head, position, 0] of a tensor.
struct HeadStrides {
  int64_t batch = 0, head = 0, position = 0;
};

struct AttentionSizes {
  int64_t heads = 0, kv_heads = 0, length = 0, keys = 0,
          size = 0;       // query heads; key-value heads; queries; keys; head size
  bool sees_all = false;  // every key is visible; otherwise causal, with as many queries as keys
  int64_t window = 0;     // sliding window of causal attention; 0: every earlier key
  float scale = 1;
};

/// Arrays of the forward pass, all of one type. The queries' tensors have `heads` heads, those of
/// the keys and values kv_heads.
struct AttentionForward {
  const void *query = nullptr, *key = nullptr, *value = nullptr;
  HeadStrides query_at, key_at, value_at, out_at;
  void* out = nullptr;
  float* log_sum =
      nullptr;  // [batch, heads, length]: log of the sum of the exponentials of each query's scores
  // [keys, rounded up to 64]: only the queries [j, seen_until[j]) see key j. Null: all later
  // queries see it. For a single batch element without a window.
  const int32_t* seen_until = nullptr;
};

struct AttentionBackward {
  AttentionForward forward;  // arrays of the forward pass; `out` is read
  const void* out_gradient = nullptr;
  HeadStrides out_gradient_at;
  void *query_gradient = nullptr, *key_gradient = nullptr, *value_gradient = nullptr;
  HeadStrides query_gradient_at, key_gradient_at, value_gradient_at;
};

/// Loops for one type and instruction set. A job is one key-value head; jobs are numbered batch by
/// batch.
struct AttentionLoops {
  /// Returns the scratch bytes that a thread needs, aligned to 64.
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
