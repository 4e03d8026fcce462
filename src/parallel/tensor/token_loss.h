// Cross-entropy over a vocabulary whose rows are spread over ranks (Shoeybi et al., 2019, section
// 3): a rank makes the logits of its rows, and the ranks exchange three numbers a token.
#pragma once

#include "mesh/cut.h"
#include "ops/token_loss.h"
#include "parallel/tensor/region.h"

namespace lockstep::parallel {

/// Which rows of the vocabulary this rank has.
struct VocabularyShard {
  Group group;
  mesh::Range rows;  // at least one
  int64_t vocabulary = 0;
};

/// The SUM of the (weighted) token losses over the rows of `hidden` [N, C], a float32 scalar, equal
/// on every rank of the group; all must call, with equal hidden and targets ([N] int64, -100
/// ignored). `weight` [V/n, C] are the shard's rows. It is ops::token_loss of a part of the
/// vocabulary: the gradients are made in the forward pass, where they are needed; that of `hidden`
/// is this rank's part of the sum over the ranks. The backward pass may run once. Error (kData)
/// where a target is not in the vocabulary. Of the options, those that describe the part are set
/// here; a place of the gradient is of this rank's part.
Tensor vocabulary_parallel_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    ops::TokenLossOptions options = {});

/// ops::token_divergences, equal on every rank; the reference's head is cut like this one.
Tensor vocabulary_parallel_divergences(
    const Tensor& hidden,
    const Tensor& weight,
    const VocabularyShard& shard,
    ops::TokenLossOptions options);

/// ops::token_scores, equal on every rank.
ops::TokenScores vocabulary_parallel_scores(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    double softcap = 0);

}  // namespace lockstep::parallel
