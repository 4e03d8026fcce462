// Cross-entropy over the vocabulary without materializing the logits of all tokens.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Target that is ignored.
inline constexpr int64_t kIgnoredTarget = -100;

/// Statistics of each row's logits over the vocabulary or a shard of it. [n] each, float32 (float64
/// for float64 hidden states).
struct RowStatistics {
  Tensor maximum;    // reference of `total`, close to the largest logit
  Tensor total;      // sum of exp(logit - maximum)
  Tensor target;     // logit of the target; 0 if the target is in another shard
  Tensor mean = {};  // with label smoothing: the shard's sum of logits divided by the size of the
                     // whole vocabulary; otherwise undefined
  // With level rows: mask of these rows, bool, and the distance of the largest logit of the whole
  // vocabulary from the mean; otherwise undefined. Need not be combined over shards.
  Tensor level = {}, excess = {};
};

/// Rows whose target is the distribution of a reference head over the same vocabulary instead of a
/// token. The loss of such a row is KL(reference || this) (Kullback and Leibler, 1951). For `level`
/// rows the target is a flat distribution.
struct DistributionTargets {
  Tensor rows;    // [N] bool, the same on all ranks that share the vocabulary; undefined: none
  Tensor hidden;  // [N, C'], no gradient: input of the reference head; C' may differ from C
  Tensor weight;  // [V, C'], no gradient; the same shard of the vocabulary as the trained weight
  // Rows in which the reference's logit of one token is lowered before its softmax; their loss is
  // the cross-entropy instead of the divergence (UNDIAL: Dong et al., 2024, equation 3):
  Tensor tokens = {};  // [N] int64: the token
  // [N] of the statistics' type: amount subtracted; 0: not such a row. Undefined, as `tokens`: none
  Tensor lowered = {};
  // [N] bool, the same on all ranks that share the vocabulary: rows whose logits should be flat.
  // The loss is the squared distance of the largest logit from their mean (PDU: Entesari et al.,
  // 2025). Undefined: none.
  Tensor level = {};
  // The reference is the trained head itself, held constant, without the rows' targets: `hidden`
  // and `weight` are undefined, and `lowered` excludes the target of each of `rows`.
  bool is_own = false;
  bool defined() const { return rows.defined() || level.defined(); }
  /// Returns [N] bool: rows of either kind.
  Tensor all() const;
};

struct TokenLossOptions {
  /// Logits become softcap * tanh(logit / softcap) (Gemma 2, 2024, section 2); 0: no cap.
  double softcap = 0;
  /// Adds z_loss * log(sum of exp(logits))^2 for each row (PaLM, 2022, section 5).
  double z_loss = 0;
  /// Label smoothing e: a row's loss is (1 - e) * -log p of its target + e * the mean of -log p
  /// over the vocabulary (Szegedy et al., "Rethinking the Inception Architecture", 2016, section
  /// 7). Not supported with softcap.
  double label_smoothing = 0;
  /// [N], no gradient: factor of each row's loss and gradient. Undefined: all 1.
  Tensor row_weights;
  /// Targets of these rows must not be -100; their value is not used.
  DistributionTargets distributions;
  /// Maximum rows per run; 0: chosen to limit the logits in memory to about 96 MiB.
  int64_t rows_at_once = 0;
  /// If `weight` is a shard of the vocabulary: the token of its first row, the total number of
  /// tokens over all shards (0: not sharded), and the number of tokens of the largest shard.
  int64_t first_token = 0;
  int64_t vocabulary = 0;
  int64_t widest_part = 0;
  /// Combines a shard's statistics into those of the whole vocabulary, in place (combine_statistics
  /// has the formulas). Called once per run of rows. Ranks with the same rows make the same runs in
  /// the same order, so it may be a collective. Empty: not sharded.
  std::function<void(RowStatistics&)> combine;
};

/// Returns the SUM over the rows of -log softmax(hidden weight^T)[target], a float32 scalar; with
/// row weights, the weighted sum. hidden is [N, C], weight [V, C] of the same type, targets [N]
/// int64 in [0, V) or -100 (ignored).
///
/// Logits are computed for a run of rows at a time, together with the required gradients of hidden
/// and weight. The weight's gradient goes to its place (ops/gradient_sink.h). The gradients are
/// stored until the backward pass, which may run once. Sums are float32. Logits have the weights'
/// type with ATen's products, and are float32 if the processor has AVX-512 (bfloat16: also
/// AVX512-BF16 or AMX). Throws Error (data) for a target out of bounds on the CPU; a GPU asserts.
///
/// If `weight` is a shard of the vocabulary, every rank gets the whole loss and the gradient of its
/// own shard. The gradient of `hidden` is the shard's contribution, which the caller sums.
Tensor token_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options = {});

/// Reference implementation of token_loss for a whole vocabulary: all logits in float32, gradients
/// by autograd.
Tensor token_loss_reference(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options = {});

/// Returns the losses of the rows of options.distributions, [N] float32 (float64 for float64 hidden
/// states), on the device of `hidden`; 0 for other rows. No autograd. For a vocabulary shard,
/// options.combine is called as in token_loss.
Tensor token_divergences(
    const Tensor& hidden, const Tensor& weight, const TokenLossOptions& options);

/// Scores of targets, in any shape.
struct TokenScores {
  Tensor log_likelihoods;  // float32 (float64 for float64 hidden states); 0 for ignored targets
  Tensor likeliest;        // bool: the target was the most likely token
};

/// Returns the scores of the rows, [N] each, on the device of `hidden`, without the z-loss. No
/// autograd.
TokenScores token_scores(
    const Tensor& hidden, const Tensor& weight, const Tensor& targets, double softcap = 0);

/// Combines the statistics of two shards of the vocabulary.
RowStatistics combine_statistics(const RowStatistics& a, const RowStatistics& b);

}  // namespace lockstep::ops
