// Cross-entropy over a vocabulary sharded over ranks (Shoeybi et al., 2019, section 3): each rank
// computes the logits of its rows, and the ranks exchange three numbers per token.
#pragma once

#include "mesh/cut.h"
#include "ops/token_loss.h"
#include "parallel/tensor/region.h"

namespace lockstep::parallel {

/// This rank's rows of the vocabulary.
struct VocabularyShard {
  Group group;
  mesh::Range rows;  // at least one row
  int64_t vocabulary = 0;
};

/// Returns the SUM of the (weighted) token losses over the rows of `hidden` [N, C], a float32
/// scalar, equal on every rank of the group; all must call with equal hidden and targets ([N]
/// int64, -100 ignored). `weight` [V/n, C] are the shard's rows. Like ops::token_loss of a
/// vocabulary shard: gradients are computed in the forward pass if needed; that of `hidden` is this
/// rank's term of the sum over the ranks. The backward pass may run once. Throws Error (kData) if a
/// target is outside the vocabulary. Options that describe the shard are set here; a gradient sink
/// refers to this rank's shard.
Tensor vocabulary_parallel_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    ops::TokenLossOptions options = {});

/// Computes ops::token_divergences; equal on every rank. The reference's head must be sharded like
/// this one.
Tensor vocabulary_parallel_divergences(
    const Tensor& hidden,
    const Tensor& weight,
    const VocabularyShard& shard,
    ops::TokenLossOptions options);

/// Computes ops::token_scores; equal on every rank.
ops::TokenScores vocabulary_parallel_scores(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    double softcap = 0);

}  // namespace lockstep::parallel
