// Temporary memory within a step. Assumes that freed memory can be reused for tensors of any size,
// so that only the maximum counts.
#pragma once

#include "plan/memory/memory.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Bytes in use at one moment of a step, without model and optimizer states.
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

/// Returns the number of trained parameters on one tensor rank of the largest block.
double largest_trained(const Job& job);
/// Returns the moment with the most memory among: the head's products after the last forward pass,
/// the backward pass of each block, and the optimizer update.
Moment fullest_moment(const Job& job, const RankShare& share);

}  // namespace lockstep::plan
