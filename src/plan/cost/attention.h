// Time of attention, on one rank and with context parallelism.
#pragma once

#include "plan/cost/block_shape.h"
#include "plan/machines/cluster.h"

namespace lockstep::plan {

/// Implementation of attention.
enum class Attention {
  kFused,   // scores never reach memory
  kScores,  // scores are in memory
  kRing,    // scores are in memory block by block, as keys and values arrive
};
Attention attention_of(const Job& job);

/// Returns the time of the two products of attention (scores and values), forward.
double attention_seconds(
    const Job& job,
    const Physics& physics,
    const Device& device,
    const BlockShape& s,
    const AttentionShape& a);
/// Returns the ratio of backward to forward time.
double attention_backward(const Job& job);

/// Returns the cost of context parallelism for a forward pass whose attention takes the given time.
/// Ring attention: transfers of keys and values overlap with attention, and the output of each step
/// is merged with the previous one. Ulysses: an all-to-all of queries, keys, values and the output.
double context_seconds(
    const Job& job,
    const Cluster& cluster,
    const NodeGroup& node,
    const BlockShape& s,
    const AttentionShape& a,
    double attention);

/// Returns the bytes read and written per score by the kernels around the products, if scores are
/// in memory.
double score_bytes(const Job& job);

}  // namespace lockstep::plan
