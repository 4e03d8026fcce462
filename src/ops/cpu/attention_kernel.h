// Causal attention over whole sequences, and attention to all of some keys, on processors with
// AVX-512, over plain pointers. Internal to ops.
//
// For 64 queries of a head at a time, against all keys that they see: scores, softmax and products
// stay in the level-2 cache, and the backward pass makes the probabilities anew from the sum of
// their exponentials (Dao et al., "FlashAttention", 2022, without its blocks of keys: a row of
// scores fits).
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Where element [batch, head, position, 0] of a tensor lies, in elements.
struct HeadStrides {
  int64_t batch = 0, head = 0, position = 0;
};

struct AttentionSizes {
  int64_t heads = 0, kv_heads = 0, length = 0, keys = 0, size = 0;  // queries; keys; of a head
  bool sees_all = false;  // every key is seen; else query i, of as many keys, sees those up to i
  int64_t window = 0;     // of these: 0: every earlier key
  float scale = 1;
};

/// Of one type: the queries' tensors have `heads` heads, the keys' and values' kv_heads.
struct AttentionForward {
  const void *query = nullptr, *key = nullptr, *value = nullptr;
  HeadStrides query_at, key_at, value_at, out_at;
  void* out = nullptr;
  float* log_sum = nullptr;  // [batch, heads, length]: of the exponentials of each query's scores
  // [keys, rounded up to 64]: key j is seen by the queries [j, seen_until[j]) alone. Null: by all
  // behind it. Of one batch, without a window.
  const int32_t* seen_until = nullptr;
};

struct AttentionBackward {
  AttentionForward forward;  // as it was; `out` is read
  const void* out_gradient = nullptr;
  HeadStrides out_gradient_at;
  void *query_gradient = nullptr, *key_gradient = nullptr, *value_gradient = nullptr;
  HeadStrides query_gradient_at, key_gradient_at, value_gradient_at;
};

/// The loops for one type and machine. Jobs are counted batch by batch, a key-value head each.
struct AttentionLoops {
  /// Bytes of scratch that a thread needs, aligned to 64.
  int64_t (*scratch_bytes)(const AttentionSizes&);
  void (*forward)(
      const AttentionSizes&, const AttentionForward&, int64_t first, int64_t last, void* scratch);
  void (*backward)(
      const AttentionSizes&, const AttentionBackward&, int64_t first, int64_t last, void* scratch);
};

extern const AttentionLoops kAttentionFloat;     // AVX-512
extern const AttentionLoops kAttentionBfloat16;  // and AVX512-BF16
extern const AttentionLoops kAttentionAmx;       // and AMX-BF16

}  // namespace lockstep::ops::kernel
