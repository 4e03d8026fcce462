// Temporary memory within a step. Freed memory is assumed to be reusable for tensors of any size,
// so only the maximum counts.
#pragma once

#include "plan/memory/memory.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Bytes at one moment of a step, without the states.
struct Moment {
  double activations = 0;
  double working = 0;
  double logits = 0;
  double gathered = 0;
  double buckets = 0;

  double total() const { return activations + working + logits + gathered + buckets; }
};

/// Blocks and micro-batches of one pipeline rank.
struct RankShare {
  BlockCounts blocks;
  bool is_first = false, is_last = false;
  double in_flight = 1;  // micro-batches in flight, in units of the rank's blocks
};

/// Returns the largest number of trained parameters of a block on one tensor rank.
double largest_trained(const Job& job);
/// Returns the largest of: the products of the head, after the last forward pass; the backward pass
/// of each block; the optimizer update.
Moment fullest_moment(const Job& job, const RankShare& share);

}  // namespace lockstep::plan
