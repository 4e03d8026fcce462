// Time of attention, on one rank and with context parallelism.
#pragma once

#include "plan/cost/block_shape.h"
#include "plan/machines/cluster.h"

namespace lockstep::plan {

/// How attention is computed.
enum class Attention {
  kFused,   // scores never reach memory
  kScores,  // scores are in memory
  kRing,    // they are so block by block, as keys and values come round
};
Attention attention_of(const Job& job);

/// The products of an attention without weights, forward.
double attention_seconds(
    const Job& job,
    const Physics& physics,
    const Device& device,
    const BlockShape& s,
    const AttentionShape& a);
/// Its backward pass over its forward pass.
double attention_backward(const Job& job);

/// What the context axis costs a forward pass of an attention that takes so long. Ring attention:
/// keys and values pass round, hidden behind the attention as far as it lasts; each step's output
/// is merged into the last one's. Else queries, keys, values and the output are traded, one part to
/// each.
double context_seconds(
    const Job& job,
    const Cluster& cluster,
    const NodeGroup& node,
    const BlockShape& s,
    const AttentionShape& a,
    double attention);

/// Read and written of a score by the kernels around its products, where scores are in memory.
double score_bytes(const Job& job);

}  // namespace lockstep::plan
