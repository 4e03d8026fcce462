// Cross-entropy over a vocabulary whose rows are spread over ranks (Shoeybi et al., 2019, section
// 3): a rank makes the logits of its rows, and the ranks exchange three numbers a token.
#pragma once

#include <functional>

#include "mesh/cut.h"
#include "parallel/tensor/region.h"

namespace lockstep::parallel {

/// Which rows of the vocabulary this rank has.
struct VocabularyShard {
  Group group;
  mesh::Range rows;  // at least one
  int64_t vocabulary = 0;
};

/// The SUM of the token losses over the rows of `hidden` [N, C], a float32 scalar, equal on every
/// rank of the group; all must call, with equal hidden and targets ([N] int64, -100 ignored).
/// `weight` [V/n, C] are the shard's rows. It is ops::token_loss of a part of the vocabulary: the
/// gradients are made in the forward pass, where they are needed; that of `hidden` is this rank's
/// part of the sum over the ranks. The backward pass may run once. Error (kData) where a target is
/// not in the vocabulary. `place_of_gradient`: of this rank's part of the weight, as in
/// ops::TokenLossOptions.
Tensor vocabulary_parallel_loss(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard,
    const std::function<Tensor()>& place_of_gradient = nullptr);

/// float64 [3], equal on every rank: the sum of the token losses, the targets counted, and those
/// that were the likeliest token. No gradient.
Tensor vocabulary_parallel_statistics(
    const Tensor& hidden,
    const Tensor& weight,
    const Tensor& targets,
    const VocabularyShard& shard);

}  // namespace lockstep::parallel
