// What a head is to predict, and what an objective is told of the rows. Labels are shifted and
// counted here and nowhere else.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "ops/token_loss.h"

namespace lockstep::nn {

using at::Tensor;

/// What an objective makes of a row: a chosen and a rejected answer (preferences; of answers that
/// are judged one by one, a good and a bad one), what is to be forgotten or kept (unlearning).
enum class RowKind : int64_t { kPlain, kChosen, kRejected, kForget, kRetain };

/// Positions that are to have a distribution, and no token for a target: that of a reference, where
/// the loss is KL(reference || model), or a level one. The score is minus the loss.
struct Distributions {
  Tensor positions;   // [B, T] bool, in step with the ids; tokens there are any of the vocabulary.
                      // Undefined: there are none
  Tensor states;      // [B, T, C'] what the reference's head reads; of this rank's part alone. Of
                      // a head that gives states (nn::StateHead) they are the targets
  Tensor vocabulary;  // [V, C'] the reference's head, or this rank's part of it
  Tensor lowered;     // [B, T] float64, like the positions: what the reference's logit of the
                      // position's token is lowered by before its softmax; the loss there is the
                      // cross-entropy. 0: nothing, and the token is none; undefined: 0 everywhere
  Tensor level;  // [B, T] bool, like the positions, and none of them: no logit is to stand out; the
                 // loss is (the largest logit - their mean)^2. Undefined: there are none

  /// [B, T] bool: positions of either kind; undefined: there are none.
  Tensor all() const;
};

/// The targets of a micro-batch, all on one device but the states and the vocabulary, which are on
/// the head's.
struct Targets {
  Tensor tokens;  // [B, T] int64, in step with the ids: what each position predicts (a token, or a
                  // class); kIgnoredTarget: nothing. Where ids are a part of the sequence, so is it
  Tensor prompts;    // [B, T] bool, likewise: targets that are of a row's prompt, whose log p is
                     // summed apart from its answer's; undefined: none
  Tensor documents;  // [B, T] int64, likewise, of rows that hold several documents which are judged
                     // one by one: the number of the document that each token is of, from 0 on.
                     // Undefined: a row is one document
  // Of whole rows, or of documents ([N] for [B]), whatever part of them is here:
  Tensor counts;         // [B] float64: the targets of each, those of prompts left out
  Tensor prompt_counts;  // [B] float64: those of prompts; undefined with `prompts`
  Tensor kinds;          // [B] int64, RowKind; undefined: all are plain
  Tensor groups;     // [B] int64 in [0, B): rows of one number are judged together; undefined: none
  Tensor reference;  // [B] float64: each row's log-likelihood by a reference; undefined: none
  Tensor baseline;   // [B] float64: what a row's gain on its reference is compared to; undefined:
                     // none
  Tensor weights;    // [B] float64: what a row's loss is multiplied by, of objectives that let it
                     // change from step to step; undefined: none
  Tensor outputs;    // [B, K] float32: what each output of a classifier is to be, where rows have
                     // several labels (0 or 1) or numbers; undefined: a class each

  Distributions distributions;

  bool defined() const { return tokens.defined(); }
  /// What is judged: B, or N documents.
  int64_t rows() const { return counts.size(0); }
  /// float64 [B] or [N], of any type [B, T]: the sum of each row's, or document's.
  Tensor sums(const Tensor& of_tokens) const;
  /// [B, T], or what is broadcast to it, of [B] or [N]: each token has what its row has.
  Tensor to_tokens(const Tensor& of_rows) const;
  /// Of each row, or document, the place of the first target that is here, int64 [B] or [N],
  /// counted over all rows (0 where none is), and whether none is, bool.
  std::pair<Tensor, Tensor> first_targets() const;
  Targets to(c10::Device device) const;
  /// The same rows, of which nothing is predicted or counted: all are plain.
  Targets ignored() const;
};

/// log p of each target, and whether it was the likeliest: [B, T] each.
using Scores = ops::TokenScores;

/// Of language modelling: each position predicts the label behind it. Labels [B, T] int64 are in
/// step with the ids; those of kIgnoredTarget, and each row's first, are not predicted.
Targets next_tokens(const Tensor& labels);
/// The same of `documents` (Targets::documents), the first label of each of which is
/// kIgnoredTarget.
Targets next_tokens_of_documents(const Tensor& labels, const Tensor& documents);
/// The same, and the positions [B, T] bool are to have the distributions of a reference instead,
/// which Reference::refer brings.
Targets with_distributions(Targets targets, const Tensor& positions);
/// The same, where the reference's logits of `tokens` [B, T] int64 are lowered by `lowered` [B, T]
/// float64 (0: not).
Targets with_distributions(
    Targets targets, const Tensor& positions, const Tensor& tokens, const Tensor& lowered);
/// The same, where the positions' logits are to be level (Distributions::level): rows that have
/// some predict nothing else.
Targets with_level(Targets targets, const Tensor& positions);
/// What next_tokens gives, for a head that gives states: each token that is predicted is to have a
/// target state instead, at its own place and not at the one before it, which Reference::refer
/// brings as distributions.states.
Targets with_states(Targets targets);
/// The same where labels [B, T] hold prompts too, which `are_prompts` [B, T] bool says.
Targets next_tokens(const Tensor& labels, const Tensor& are_prompts, const Tensor& documents = {});
/// Of masked language modelling: each position predicts its own label [B, T] int64, kIgnoredTarget:
/// nothing.
Targets own_tokens(const Tensor& labels);
/// Of classification: the position [B] of each row, its last token that is no padding (of an
/// encoder its first), predicts the row's class [B] int64; kIgnoredTarget: the row has none.
/// `length` is T. Rows with `outputs` have class 0, or none.
Targets classes_at(const Tensor& positions, const Tensor& classes, int64_t length);
/// The same of `documents` [B, T] (Targets::documents): positions [N] are counted over all rows.
Targets document_classes_at(
    const Tensor& positions, const Tensor& classes, const Tensor& documents);

}  // namespace lockstep::nn
