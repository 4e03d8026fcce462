// Token loss loops over plain pointers for processors with AVX-512: vocabulary projection, softmax
// and both gradients for a chunk of rows. Internal to ops.
//
// The forward pass processes a piece of the vocabulary and a panel of 64 rows in the level-2 cache:
//   logits = W X^T    e = exp(logits - reference[row])    total[row] += e    dX^T += W^T e
//
// It stores e in the type of the weights, with the e of the target set to zero. When the totals
// over the whole vocabulary (over all shards, if it is sharded) are known, the softmax is e *
// factor[row], and
//   dX = dX^T^T * factor - share * W[target]
//   dW = e (X * factor) - share * X of the target's rows
//
// The factor is applied to X, so that e is read only once and not modified. The reference of a row
// is the largest logit of its first piece. It is raised if a later logit exceeds it so much that e
// might overflow.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Sizes of a chunk of rows, and of the scratch memory for it.
struct LossHeadShape {
  int64_t rows = 0, width = 0, vocabulary = 0;
  int64_t panels = 0;  // number of panels of 64 rows
  int64_t piece = 0;   // number of vocabulary rows per piece
  int64_t pieces = 0;
  int64_t padded_width = 0;
  int64_t kept_stride = 0;  // stride between the stored exponentials of consecutive vocabulary rows
  // Bytes for the chunk, and for each thread.
  int64_t kept_bytes = 0, panel_bytes = 0, gradient_bytes = 0, reference_bytes = 0;
  int64_t thread_bytes = 0;
};

/// Arrays of one chunk of rows.
struct LossHeadRun {
  const void* hidden = nullptr;  // [rows, width]
  const void* weight = nullptr;  // [vocabulary, width]
  // [panels * 64]; values outside [0, vocabulary), as in the padding: the target is not in this
  // shard
  const int64_t* target = nullptr;
  float softcap = 0;  // 0: no cap
  // Scratch memory with the sizes of LossHeadShape, aligned to 64 bytes.
  void* kept = nullptr;         // exponentials
  void* panel = nullptr;        // hidden states in panels
  float* gradient = nullptr;    // dX^T of each panel; null: no gradient is required
  float* references = nullptr;  // [pieces, panels * 64]: references of the stored exponentials
  // [panels * 64] each, computed by forward():
  float* maximum = nullptr;       // reference of `total` and `gradient`
  float* total = nullptr;         // sum of exp(logit - maximum)
  float* target_logit = nullptr;  // 0 if the target is not in this shard
  // [panels * 64], set by the caller before the gradients are computed. The gradient of a logit is
  // e * factor, with e relative to `maximum`; that of the target's logit is -share.
  const float* factor = nullptr;
  const float* share = nullptr;
};

/// Destination of the weight gradient: the float32 sum over chunks, and the rounded result.
struct WeightGradientTarget {
  float* sum = nullptr;    // [vocabulary, width]; null for a single bfloat16 chunk
  void* result = nullptr;  // [vocabulary, width]; null before the last chunk, and for float32
  bool is_first = true;
  const int64_t* order = nullptr;  // rows whose target is in this shard, sorted by target
  int64_t ordered = 0;
};

/// Loops for one type and instruction set.
struct LossHeadLoops {
  LossHeadShape (*shape)(int64_t rows, int64_t width, int64_t vocabulary);
  /// Computes the statistics and the unscaled gradient of the hidden states for the panels [first,
  /// last).
  void (*forward)(
      const LossHeadShape&, const LossHeadRun&, int64_t first, int64_t last, void* thread);
  /// Computes the gradient of the hidden states, [rows, width], for the panels [first, last).
  void (*hidden_gradient)(
      const LossHeadShape&, const LossHeadRun&, int64_t first, int64_t last, void* result);
  /// Computes the gradient of the weight for the pieces [first, last).
  void (*weight_gradient)(
      const LossHeadShape&,
      const LossHeadRun&,
      const WeightGradientTarget&,
      int64_t first,
      int64_t last,
      void* thread);
};

extern const LossHeadLoops kLossHeadFloat;     // AVX-512
extern const LossHeadLoops kLossHeadBfloat16;  // AVX-512 and AVX512-BF16
extern const LossHeadLoops kLossHeadAmx;       // AVX-512 and AMX-BF16

}  // namespace lockstep::ops::kernel
