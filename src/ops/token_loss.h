// Cross-entropy over the vocabulary, without ever holding the logits of all tokens.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// The target that does not count.
inline constexpr int64_t kIgnoredTarget = -100;

/// What is known of each row's logits: of a part of the vocabulary, or of all of it. [n] each,
/// float32 (float64 for hidden states of that type).
struct RowStatistics {
  Tensor maximum;    // about the largest logit; what `total` is relative to
  Tensor total;      // the sum of exp(logit - maximum)
  Tensor target;     // the logit of the target; 0 where another part holds it
  Tensor mean = {};  // with label smoothing: the part's sum of logits over the size of the whole
                     // vocabulary; else undefined
  // With level rows: which these are, bool, and how far the largest logit of the whole vocabulary
  // is above its mean; else undefined. Parts need not be combined.
  Tensor level = {}, excess = {};
};

/// Rows whose target is no token, but the distribution of another head over the same vocabulary: a
/// reference's. The loss of such a row is the divergence KL(reference || this) (Kullback and
/// Leibler, 1951). Or no distribution is better than another: `level`.
struct DistributionTargets {
  Tensor rows;    // [N] bool, the same for all holders of parts of the vocabulary; undefined: none
  Tensor hidden;  // [N, C'], no gradient: what that head reads; C' may be another width
  Tensor
      weight;  // [V, C'], no gradient; of the same part of the vocabulary as the weight beside it
  // Rows in which the reference's logit of one token is lowered before its softmax, and whose loss
  // is the cross-entropy instead (UNDIAL: Dong et al., 2024, equation 3):
  Tensor tokens = {};  // [N] int64: which token
  // [N] of the statistics' type: by how much; 0: not. Undefined with `tokens`: none.
  Tensor lowered = {};
  // [N] bool, likewise the same for all: rows of whose logits none is to stand out. The loss is the
  // square of how far the largest is above their mean (PDU: Entesari et al., 2025). Undefined:
  // none.
  Tensor level = {};
  bool defined() const { return rows.defined() || level.defined(); }
  /// [N] bool: rows of either kind.
  Tensor all() const;
};

struct TokenLossOptions {
  /// Logits become softcap * tanh(logit / softcap) (Gemma 2, 2024, section 2); 0: they stay.
  double softcap = 0;
  /// Adds z_loss * log(sum of exp(logits))^2 for each row (PaLM, 2022, section 5).
  double z_loss = 0;
  /// e: a row's loss is (1 - e) * -log p of its target + e * the mean of -log p over the vocabulary
  /// (Szegedy et al., "Rethinking the Inception Architecture", 2016, section 7). Not with softcap.
  double label_smoothing = 0;
  /// [N], no gradient: what each row's loss, and with it its gradient, is multiplied by. Undefined:
  /// one.
  Tensor row_weights;
  /// Targets of these rows must not be -100, and are not read otherwise.
  DistributionTargets distributions;
  /// Bounds the rows of a run; 0 lets about 96 MiB of logits be held at a time.
  int64_t rows_at_once = 0;
  /// Where `weight` is a part of the vocabulary: the token of its first row, how many tokens
  /// all parts hold together (0: this is all of it), and how many the largest part holds.
  int64_t first_token = 0;
  int64_t vocabulary = 0;
  int64_t widest_part = 0;
  /// Makes a part's statistics those of the whole vocabulary, in place (combine_statistics has the
  /// formulas). Called once for each run of rows; holders of the same rows are asked for the same
  /// runs in the same order, so it may be a collective. Empty: the part is the whole.
  std::function<void(RowStatistics&)> combine;
};

/// The SUM over the rows of -log softmax(hidden weight^T)[target], a float32 scalar; of rows with
/// weights, that of their products. hidden [N, C],
/// weight [V, C] of the same type, targets [N] int64 in [0, V) or -100 (ignored). Logits are made
/// for a run of rows at a time, and the gradients of both in the same pass, where they are needed
/// (the weight's where it belongs: ops/gradient_sink.h); they are kept until the backward pass,
/// which may run once. Sums are float32: logits are of the
/// weights' type where ATen makes them, and float32 where the processor has AVX-512 (bfloat16: and
/// AVX512-BF16 or AMX). A target out of bounds is an Error (kData), on the CPU; a GPU asserts.
/// Where `weight` is a part of the vocabulary, every holder gets the whole loss and the gradient of
/// its own part; the gradient of `hidden` is the part's share, which the caller sums.
Tensor token_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options = {});

/// token_loss, written plainly (all logits in float32, gradients by autograd), for a whole
/// vocabulary: a reference.
Tensor token_loss_reference(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const TokenLossOptions& options = {});

/// The losses of the rows of options.distributions, [N] float32 (float64 of hidden states of that
/// type), on the device of `hidden`; 0 for other rows. No gradient. Of a part of the vocabulary, as
/// token_loss: options.combine is called.
Tensor token_divergences(
    const Tensor& hidden, const Tensor& weight, const TokenLossOptions& options);

/// What a head gives each target, in any shape.
struct TokenScores {
  Tensor log_likelihoods;  // float32 (float64 of hidden states of that type); 0 where none counts
  Tensor likeliest;        // bool: the target was the likeliest token
};

/// Of the rows, [N] each, on the device of `hidden`; without the z-loss. No gradient.
TokenScores token_scores(
    const Tensor& hidden, const Tensor& weight, const Tensor& targets, double softcap = 0);

/// The statistics of two parts of the vocabulary, together.
RowStatistics combine_statistics(const RowStatistics& a, const RowStatistics& b);

}  // namespace lockstep::ops
