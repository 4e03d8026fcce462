// Prediction targets of a head and per-row information for the objective. Labels are shifted and
// counted only here.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "ops/token_loss.h"

namespace lockstep::nn {

using at::Tensor;

/// Role of a row in the objective: chosen or rejected answer (preference data; for unpaired
/// answers, desirable or undesirable), forget set or retain set (unlearning).
enum class RowKind : int64_t { kPlain, kChosen, kRejected, kForget, kRetain };

/// Positions whose target is a distribution instead of a token: that of a reference model, with the
/// loss KL(reference || model), or a uniform one. The score is minus the loss.
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

  /// [B, T] bool: positions of both kinds; undefined: none.
  Tensor all() const;
};

/// Targets of a micro-batch. All tensors are on one device, except the states and the vocabulary,
/// which are on the head's.
struct Targets {
  Tensor tokens;   // [B, T] int64, aligned with the ids: the target of each position (a token or a
                   // class); kIgnoredTarget: none. Sliced as the ids
  Tensor prompts;  // [B, T] bool, sliced as the ids: targets in a row's prompt, whose log p is
                   // summed separately from the answer's; undefined: none
  Tensor documents;  // [B, T] int64, sliced as the ids, for rows with several independently scored
                     // documents: index of each token's document. Undefined: a row is one document
  // Per whole row, or per document ([N] instead of [B]), even if the tokens above are a slice:
  Tensor counts;         // [B] float64: number of targets, excluding prompts
  Tensor prompt_counts;  // [B] float64: number of prompt targets; undefined without `prompts`
  Tensor kinds;          // [B] int64, RowKind; undefined: all are plain
  Tensor groups;     // [B] int64 in [0, B): rows with the same number are compared with each other;
                     // undefined: none
  Tensor reference;  // [B] float64: each row's log-likelihood under the reference model; undefined:
                     // none
  Tensor baseline;   // [B] float64: baseline of a row's log-ratio to the reference, or a pair's
                     // margin for reward models; undefined: none
  Tensor weights;  // [B] float64: weight of each row's loss, for objectives that vary it per step;
                   // undefined: none
  Tensor outputs;  // [B, K] float32: target of each classifier output, for multi-label (0 or 1) or
                   // regression tasks; undefined: a single class per row

  Distributions distributions;

  bool defined() const { return tokens.defined(); }
  /// Number of scored units: B rows or N documents.
  int64_t rows() const { return counts.size(0); }
  /// Sums token values [B, T] of any type per row or document: float64 [B] or [N].
  Tensor sums(const Tensor& of_tokens) const;
  /// Expands per-row values [B] or [N] to [B, T], or to a shape that broadcasts to it.
  Tensor to_tokens(const Tensor& of_rows) const;
  /// For each row or document: the index of its first target on this rank, int64 [B] or [N],
  /// counted over all rows (0 if none), and whether it has none, bool.
  std::pair<Tensor, Tensor> first_targets() const;
  Targets to(c10::Device device) const;
  /// The same rows without targets or counts; all are plain.
  Targets ignored() const;
};

/// log p of each target, and whether it is the most likely token: [B, T] each.
using Scores = ops::TokenScores;

/// Language modeling targets: each position predicts the next label. Labels [B, T] int64 are
/// aligned with the ids; labels equal to kIgnoredTarget and each row's first are not predicted.
Targets next_tokens(const Tensor& labels);
/// The same for `documents` (Targets::documents); the first label of each document must be
/// kIgnoredTarget.
Targets next_tokens_of_documents(const Tensor& labels, const Tensor& documents);
/// The same, but the target of `positions` [B, T] bool is a reference model's distribution, which
/// Reference::refer supplies.
Targets with_distributions(Targets targets, const Tensor& positions);
/// The same, with the reference's logits of `tokens` [B, T] int64 reduced by `lowered` [B, T]
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
/// target state at its own position instead of the previous one. Reference::refer supplies the
/// states as distributions.states.
Targets with_states(Targets targets);
/// The same for labels [B, T] that include prompts, marked by `are_prompts` [B, T] bool.
Targets next_tokens(const Tensor& labels, const Tensor& are_prompts, const Tensor& documents = {});
/// Masked language modeling targets: each position predicts its own label [B, T] int64;
/// kIgnoredTarget: none.
Targets own_tokens(const Tensor& labels);
/// Classification targets: the position [B] of each row (the last non-padding token; for an encoder
/// the first token) predicts the row's class [B] int64; kIgnoredTarget: no class. `length` is T.
/// Rows with `outputs` have class 0 or none.
Targets classes_at(const Tensor& positions, const Tensor& classes, int64_t length);
/// The same for `documents` [B, T] (Targets::documents): positions [N] are indices over all rows.
Targets document_classes_at(
    const Tensor& positions, const Tensor& classes, const Tensor& documents);

}  // namespace lockstep::nn
