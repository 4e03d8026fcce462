// Cross-entropy over a vocabulary that is sharded over ranks (Shoeybi et al., 2019, section 3).
// Each rank computes the logits of its vocabulary rows, and the ranks exchange three numbers per
// token.
#pragma once

#include "mesh/cut.h"
#include "ops/token_loss.h"
#include "parallel/tensor/region.h"

namespace lockstep::parallel {

/// This rank's rows of the vocabulary.
struct VocabularyShard {
  Group group;
  mesh::Range rows;  // contains at least one row
  int64_t vocabulary = 0;
};

/// Returns the SUM of the (weighted) token losses over the rows of `hidden` [N, C]: a float32
/// scalar, equal on every rank of the group. Must be called on every rank with equal hidden and
/// targets ([N] int64, -100: ignored). `weight` [V/n, C] contains the shard's rows. As in
/// ops::token_loss of a vocabulary shard, required gradients are computed in the forward pass; the
/// gradient of `hidden` is this rank's term of the sum over the ranks. The backward pass may run
/// only once. Throws Error (kData) if a target is outside the vocabulary. This function sets the
/// options that describe the shard; a gradient sink refers to this rank's shard.
Tensor vocabulary_parallel_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    ops::TokenLossOptions options = {});

/// Computes ops::token_divergences. The result is equal on every rank. The reference model's head
/// must be sharded in the same way.
Tensor vocabulary_parallel_divergences(
    const Tensor& hidden,
    const Tensor& weight,
    const VocabularyShard& shard,
    ops::TokenLossOptions options);

/// Computes ops::token_scores. The result is equal on every rank.
ops::TokenScores vocabulary_parallel_scores(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    double softcap = 0);

}  // namespace lockstep::parallel
