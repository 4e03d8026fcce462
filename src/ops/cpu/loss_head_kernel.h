// The loops of the token loss on processors with AVX-512: vocabulary projection, softmax and both
// gradients over plain pointers, for a run of rows at a time. Internal to ops.
//
// For a piece of the vocabulary and a panel of 64 rows, all in the level-2 cache:
//   logits = W X^T    e = exp(logits - reference[row])    total[row] += e    dX^T += W^T e
// and e is kept, in the type of the weights, but for the target's own. When the totals are known
// (of the whole vocabulary, where this is a part of it), the softmax is e * factor[row], and
//   dX = dX^T^T * factor - share * W[target]    dW = e (X * factor) - share * X of the target's
//   rows
// so e is read once, as it is: the factor is put on X. The reference of a row is its largest logit
// in the first piece; it moves where a later one exceeds it by so much that e might overflow.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Sizes of a run of rows, and the scratch that it needs.
struct LossHeadShape {
  int64_t rows = 0, width = 0, vocabulary = 0;
  int64_t panels = 0;        // of 64 rows
  int64_t piece = 0;         // words at a time
  int64_t pieces = 0;        //
  int64_t padded_width = 0;  //
  int64_t kept_stride = 0;   // values between the exponentials of two words
  // Bytes: of the run, and of each thread.
  int64_t kept_bytes = 0, panel_bytes = 0, gradient_bytes = 0, reference_bytes = 0;
  int64_t thread_bytes = 0;
};

/// One run of rows.
struct LossHeadRun {
  const void* hidden = nullptr;  // [rows, width]
  const void* weight = nullptr;  // [vocabulary, width]
  // [panels * 64]; outside [0, vocabulary), as behind the last row: not in this part
  const int64_t* target = nullptr;
  float softcap = 0;  // 0: none
  // Scratch of the shape's sizes, aligned to 64 bytes.
  void* kept = nullptr;         // the exponentials
  void* panel = nullptr;        // the hidden states in panels
  float* gradient = nullptr;    // dX^T of each panel; null: no gradient is needed
  float* references = nullptr;  // [pieces, panels * 64]: what the kept exponentials are relative to
  // [panels * 64] each, set by forward():
  float* maximum = nullptr;       // the reference that `total` and `gradient` are relative to
  float* total = nullptr;         // the sum of exp(logit - maximum)
  float* target_logit = nullptr;  // 0 where it is not in this part
  // [panels * 64], set by the caller before the gradients: the gradient of a logit is e * factor,
  // where e is relative to `maximum`, and that of the target's is -share.
  const float* factor = nullptr;
  const float* share = nullptr;
};

/// Where the gradient of the weight goes: the sum of the runs in float32, and the rounded result.
struct WeightGradientTarget {
  float* sum = nullptr;    // [vocabulary, width]; null where there is one run of bfloat16
  void* result = nullptr;  // [vocabulary, width]; null before the last run, and in float32
  bool is_first = true;
  const int64_t* order = nullptr;  // the rows whose target is in this part, by target
  int64_t ordered = 0;
};

/// The loops for one type and machine.
struct LossHeadLoops {
  LossHeadShape (*shape)(int64_t rows, int64_t width, int64_t vocabulary);
  /// Statistics, and the unscaled gradient of the hidden states, of panels [first, last).
  void (*forward)(
      const LossHeadShape&, const LossHeadRun&, int64_t first, int64_t last, void* thread);
  /// The gradient of the hidden states, [rows, width], of panels [first, last).
  void (*hidden_gradient)(
      const LossHeadShape&, const LossHeadRun&, int64_t first, int64_t last, void* result);
  /// The gradient of the weight, of pieces [first, last).
  void (*weight_gradient)(
      const LossHeadShape&,
      const LossHeadRun&,
      const WeightGradientTarget&,
      int64_t first,
      int64_t last,
      void* thread);
};

extern const LossHeadLoops kLossHeadFloat;     // AVX-512
extern const LossHeadLoops kLossHeadBfloat16;  // and AVX512-BF16
extern const LossHeadLoops kLossHeadAmx;       // and AMX-BF16

}  // namespace lockstep::ops::kernel
