// Prediction targets of a head, and per-row information for the objective. This is the only place
// where labels are shifted and counted.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "ops/token_loss.h"

namespace lockstep::nn {

using at::Tensor;

/// Role of a row in the objective. Preference data: chosen or rejected answer (unpaired answers:
/// desirable or undesirable). Unlearning: forget set or retain set.
enum class RowKind : int64_t { kPlain, kChosen, kRejected, kForget, kRetain };

/// Positions whose target is a distribution instead of a token: the output of a reference model,
/// with the loss KL(reference || model), or a uniform distribution. The score is minus the loss.
struct Distributions {
  Tensor positions;  // [B, T] bool, aligned with the ids; the token ids there are arbitrary.
                     // Undefined: no such positions
  Tensor states;  // [B, T, C'] inputs of the reference's head, of this rank's positions only. For a
                  // head that returns states (nn::StateHead) these are the targets
  Tensor vocabulary;  // [V, C'] the reference's head, or this rank's shard of it
  Tensor lowered;  // [B, T] float64, as the positions: amount subtracted from the reference's logit
                   // of the position's token before its softmax; the loss there is the
                   // cross-entropy. 0: no subtraction and no token; undefined: 0 everywhere
  bool are_own = false;  // the reference is the trained model itself, held constant: its head reads
                         // its own states, and `states` and `vocabulary` are undefined
  Tensor level;  // [B, T] bool, disjoint from `positions`: uniform logits are the target; the loss
                 // is (largest logit - mean logit)^2. Undefined: no such positions

  /// Returns the positions of both types, [B, T] bool; undefined: no such positions.
  Tensor all() const;
};

/// Targets of a micro-batch. All tensors are on the same device, except the states and the
/// vocabulary, which are on the head's device.
struct Targets {
  Tensor tokens;     // [B, T] int64, aligned with the ids: target of each position (a token or a
                     // class); kIgnoredTarget: no target. Sliced like the ids
  Tensor prompts;    // [B, T] bool, sliced like the ids: targets in a row's prompt, whose log p is
                     // summed separately from that of the answer; undefined: no such targets
  Tensor documents;  // [B, T] int64, sliced like the ids: index of each token's document, for rows
                     // with several independently scored documents. Undefined: each row is one
                     // document
  // Values per whole row, or per document ([N] instead of [B]), even if the tokens above are a
  // slice:
  Tensor counts;         // [B] float64: number of targets, without prompts
  Tensor prompt_counts;  // [B] float64: number of prompt targets; undefined without `prompts`
  Tensor kinds;          // [B] int64: RowKind; undefined: all rows are plain
  Tensor groups;     // [B] int64 in [0, B): rows with the same number are compared with each other;
                     // undefined: no comparisons
  Tensor reference;  // [B] float64: log-likelihood of each row under the reference model;
                     // undefined: no reference model
  Tensor baseline;   // [B] float64: baseline for a row's log-ratio to the reference, or a pair's
                     // margin for reward models; undefined: none
  Tensor weights;    // [B] float64: weight of each row's loss, for objectives whose weights vary by
                     // step; undefined: 1
  Tensor outputs;    // [B, K] float32: target of each classifier output for multi-label (0 or 1) or
                     // regression tasks; undefined: one class per row

  Distributions distributions;

  bool defined() const { return tokens.defined(); }
  /// Returns the number of scored units: B rows or N documents.
  int64_t rows() const { return counts.size(0); }
  /// Sums token values [B, T] of any type per row or document. Returns float64 [B] or [N].
  Tensor sums(const Tensor& of_tokens) const;
  /// Expands per-row values [B] or [N] to [B, T], or to a shape that is broadcastable to it.
  Tensor to_tokens(const Tensor& of_rows) const;
  /// Returns for each row or document: the index of its first target on this rank, int64 [B] or
  /// [N], counted over all rows (0 if it has none), and a bool that is true if it has none.
  std::pair<Tensor, Tensor> first_targets() const;
  Targets to(c10::Device device) const;
  /// Returns the same rows without targets and counts; all rows are plain.
  Targets ignored() const;
};

/// log p of each target, and true if the target is the most likely token: [B, T] each.
using Scores = ops::TokenScores;

/// Returns language modeling targets: each position predicts the next label. Labels [B, T] int64
/// are aligned with the ids. Labels equal to kIgnoredTarget and the first label of each row are not
/// predicted.
Targets next_tokens(const Tensor& labels);
/// Variant for `documents` (Targets::documents). The first label of each document must be
/// kIgnoredTarget.
Targets next_tokens_of_documents(const Tensor& labels, const Tensor& documents);
/// Replaces the targets at `positions` [B, T] bool with the output distribution of a reference
/// model, which Reference::refer provides.
Targets with_distributions(Targets targets, const Tensor& positions);
/// Overload that reduces the reference's logits of `tokens` [B, T] int64 by `lowered` [B, T]
/// float64 (0: unchanged).
Targets with_distributions(
    Targets targets, const Tensor& positions, const Tensor& tokens, const Tensor& lowered);
/// The same, but the target of `positions` [B, T] bool, which have a token, is the trained model's
/// own distribution over all other tokens, held constant. Needs no reference.
Targets with_other_tokens(Targets targets, const Tensor& positions);
/// The same, but the target of `positions` is a uniform distribution (Distributions::level); rows
/// with such positions have no other targets.
Targets with_level(Targets targets, const Tensor& positions);
/// Converts the result of next_tokens for a head that returns states: each predicted token has a
/// target state at its own position instead of the previous one. Reference::refer provides the
/// states as distributions.states.
Targets with_states(Targets targets);
/// Overload for labels [B, T] that include prompts, which `are_prompts` [B, T] bool marks.
Targets next_tokens(const Tensor& labels, const Tensor& are_prompts, const Tensor& documents = {});
/// Returns masked language modeling targets: each position predicts its own label [B, T] int64;
/// kIgnoredTarget: no target.
Targets own_tokens(const Tensor& labels);
/// Returns classification targets: position positions[b] of row b (the last non-padding token; for
/// an encoder, the first token) predicts the class of the row, both [B] int64; kIgnoredTarget: no
/// class. `length` is T. Rows with `outputs` have class 0 or no class.
Targets classes_at(const Tensor& positions, const Tensor& classes, int64_t length);
/// Variant for `documents` [B, T] (Targets::documents). Positions [N] are indices over all rows.
Targets document_classes_at(
    const Tensor& positions, const Tensor& classes, const Tensor& documents);

}  // namespace lockstep::nn
