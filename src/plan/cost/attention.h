// Estimated time of attention, on one rank and with context parallelism.
#pragma once

#include "plan/cost/block_shape.h"
#include "plan/machines/cluster.h"

namespace lockstep::plan {

/// Implementation of attention.
enum class Attention {
  kFused,   // scores are not written to memory
  kScores,  // scores are written to memory
  kRing,    // scores are written to memory block by block as keys and values arrive
};
Attention attention_of(const Job& job);

/// Returns the forward time of the two products of attention (scores and values).
double attention_seconds(
    const Job& job,
    const Physics& physics,
    const Device& device,
    const BlockShape& s,
    const AttentionShape& a);
/// Returns the ratio of backward to forward time.
double attention_backward(const Job& job);

/// Returns the additional time of context parallelism for a forward pass with the given attention
/// time. Ring attention: transfers of keys and values overlap with attention, and each step's
/// output is merged with the previous one. Ulysses: an all-to-all of queries, keys, values and
/// output.
double context_seconds(
    const Job& job,
    const Cluster& cluster,
    const NodeGroup& node,
    const BlockShape& s,
    const AttentionShape& a,
    double attention);

/// Returns the bytes per score that the kernels around the products read and write if scores are in
/// memory.
double score_bytes(const Job& job);

}  // namespace lockstep::plan
