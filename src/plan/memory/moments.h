// Temporary memory within a step. Freed memory is assumed to be reusable for tensors of any size,
// so only the maximum counts.
#pragma once

#include "plan/memory/memory.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Bytes beside the states, at one moment of a step.
struct Moment {
  double activations = 0;
  double working = 0;
  double logits = 0;
  double gathered = 0;
  double buckets = 0;

  double total() const { return activations + working + logits + gathered + buckets; }
};

/// One pipeline rank.
struct RankShare {
  BlockCounts blocks;
  bool is_first = false, is_last = false;
  double in_flight = 1;  // micro-batches whose activations are held, in whole ranks' worth
};

/// Parameters of a block that are trained, of the one with the most, on one tensor rank.
double largest_trained(const Job& job);
/// The fullest of: the head's products, when the last forward pass ends; the backward pass of each
/// block; the optimizer's update.
Moment fullest_moment(const Job& job, const RankShare& share);

}  // namespace lockstep::plan
