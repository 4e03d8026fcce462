// Cross-entropy over the vocabulary that never holds the logits of all tokens in memory.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Marks rows without a target.
inline constexpr int64_t kIgnoredTarget = -100;

/// Statistics of each row's logits over the vocabulary or a shard of it. Each is [n], float32
/// (float64 for float64 hidden states).
struct RowStatistics {
  Tensor maximum;    // reference for `total`, close to the largest logit
  Tensor total;      // sum of exp(logit - maximum)
  Tensor target;     // logit of the target; 0 if the target is in another shard
  Tensor mean = {};  // with label smoothing: sum of the shard's logits divided by the size of the
                     // whole vocabulary; otherwise undefined
  // If there are level rows: bool mask of these rows, and distance of the largest logit of the
  // whole vocabulary from the mean. Otherwise undefined. These do not have to be combined over
  // shards.
  Tensor level = {}, excess = {};
};

/// Rows whose target is the output distribution of a reference head over the same vocabulary
/// instead of a token. The loss of such a row is KL(reference || this) (Kullback and Leibler,
/// 1951). The target of `level` rows is a flat distribution.
struct DistributionTargets {
  Tensor rows;    // [N] bool, equal on all ranks that share the vocabulary; undefined: no rows
  Tensor hidden;  // [N, C'], no gradient: input of the reference model's head; C' may differ from C
  Tensor weight;  // [V, C'], no gradient: weight of the reference model's head; the same shard of
                  // the vocabulary as the trained weight
  // Rows in which the reference's logit of one token is reduced before the softmax. Their loss is
  // the cross-entropy instead of the divergence (UNDIAL: Dong et al., 2024, equation 3).
  Tensor tokens = {};  // [N] int64: the token whose logit is reduced
  // [N], in the type of the statistics: amount that is subtracted from the logit; 0: the row is not
  // modified. Undefined: no rows are modified.
  Tensor lowered = {};
  // [N] bool, equal on all ranks that share the vocabulary: rows whose logits should be flat. Their
  // loss is the squared distance of the largest logit from the mean logit (PDU: Entesari et al.,
  // 2025). Undefined: no rows.
  Tensor level = {};
  // The reference is the trained head itself, held constant, without the rows' targets: `hidden`
  // and `weight` are undefined, and `lowered` excludes the target of each of `rows`.
  bool is_own = false;
  bool defined() const { return rows.defined() || level.defined(); }
  /// Returns [N] bool: rows of both kinds.
  Tensor all() const;
};

struct TokenLossOptions {
  /// Soft cap: logits become softcap * tanh(logit / softcap) (Gemma 2, 2024, section 2); 0: no cap.
  double softcap = 0;
  /// Coefficient of the term log(sum of exp(logits))^2 that is added to each row's loss (PaLM,
  /// 2022, section 5).
  double z_loss = 0;
  /// Label smoothing e: the loss of a row is (1 - e) * -log p of its target + e * the mean of -log
  /// p over the vocabulary (Szegedy et al., "Rethinking the Inception Architecture", 2016, section
  /// 7). Not supported with softcap.
  double label_smoothing = 0;
  /// [N], no gradient: factor of each row's loss and gradient. Undefined: 1.
  Tensor row_weights;
  /// The targets of these rows must not be -100; otherwise their value is not used.
  DistributionTargets distributions;
  /// Maximum number of rows per chunk; 0: limits the logits in memory to about 96 MiB.
  int64_t rows_at_once = 0;
  /// Set if `weight` is a shard of the vocabulary: the token of its first row, the number of tokens
  /// over all shards (0: not sharded), and the number of tokens of the largest shard.
  int64_t first_token = 0;
  int64_t vocabulary = 0;
  int64_t widest_part = 0;
  /// Combines the statistics of a shard into those of the whole vocabulary, in place
  /// (combine_statistics has the formulas). Called once per chunk of rows. It may use collectives,
  /// because ranks with the same rows process the same chunks in the same order. Empty: not
  /// sharded.
  std::function<void(RowStatistics&)> combine;
};

/// Returns the SUM over the rows of -log softmax(hidden weight^T)[target], weighted if row weights
/// are given: a float32 scalar. hidden is [N, C]; weight is [V, C] of the same type; targets are
/// [N] int64 in [0, V), or -100 (ignored).
///
/// Computes the logits of one chunk of rows at a time, together with the required gradients of
/// hidden and weight. The weight's gradient is written to its sink (ops/gradient_sink.h). The
/// gradients are stored until the backward pass, which may run only once. Sums are float32. With
/// ATen's products, logits have the type of the weight; they are float32 if the processor has
/// AVX-512 (bfloat16: also AVX512-BF16 or AMX). Throws Error (data) if a target is out of range on
/// the CPU; a GPU asserts.
///
/// If `weight` is a shard of the vocabulary, every rank gets the whole loss and the gradient of its
/// own shard. The gradient of `hidden` is the shard's contribution, which the caller must sum over
/// the ranks.
Tensor token_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options = {});

/// Reference implementation of token_loss for a whole vocabulary: computes all logits in float32
/// and uses autograd for the gradients.
Tensor token_loss_reference(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options = {});

/// Returns the losses of the rows of options.distributions, and 0 for other rows: [N] float32
/// (float64 for float64 hidden states), on the device of `hidden`. Does not support autograd. For a
/// vocabulary shard, calls options.combine as token_loss does.
Tensor token_divergences(
    const Tensor& hidden, const Tensor& weight, const TokenLossOptions& options);

/// Scores of targets. The tensors may have any shape.
struct TokenScores {
  Tensor log_likelihoods;  // float32 (float64 for float64 hidden states); 0 for ignored targets
  Tensor likeliest;        // bool: true if the target is the most likely token
};

/// Returns the scores of the rows, [N] each, on the device of `hidden`. The z-loss is not included.
/// Does not support autograd.
TokenScores token_scores(
    const Tensor& hidden, const Tensor& weight, const Tensor& targets, double softcap = 0);

/// Combines the statistics of two shards of the vocabulary.
RowStatistics combine_statistics(const RowStatistics& a, const RowStatistics& b);

}  // namespace lockstep::ops
