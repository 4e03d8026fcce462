// A machine as `lockstep calibrate` measures it: samples of what it did, and the few rates that
// they come down to.
#pragma once

#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// [m, k] × [k, n], alone.
struct ProductSample {
  double m = 0, n = 0, k = 0, seconds = 0;
};

/// The forward and backward pass of one micro-batch of the job's model, on one rank.
struct PassSample {
  Job job;
  double seconds = 0;
};

/// An all-reduce over `members` ranks of this machine.
struct ReduceSample {
  double members = 0, bytes = 0, seconds = 0;
};

/// Causal ring attention, forward and backward, over `members` ranks that hold `length` positions
/// each, of `heads` heads (times sequences).
struct RingSample {
  double members = 1, heads = 0, length = 0, head_dim = 0, seconds = 0;
};

struct MachineSamples {
  std::vector<ProductSample> products16, products32;
  std::vector<PassSample> passes;
  std::vector<ReduceSample> reductions;
  std::vector<RingSample> ring16, ring32;
  double spread = 0;  // seconds: ranks that compute for t wait for the slowest sqrt(spread x t)
  double copy_bandwidth = 0;    // bytes/s read and written by a copy
  double update_bandwidth = 0;  // bytes/s read and written by the optimizer
  double memory_bytes = 0;      // of a rank
  int ranks = 1;                // that measured at the same time
};

/// The rates with the least squares of relative errors, none negative: peak and short sides of each
/// type from the products, then each type's attention, element-wise kernels and softmax and a
/// kernel's least time from the passes, bandwidth and latency from the reductions. One node of
/// `ranks` devices.
NodeGroup fit_machine(const MachineSamples& samples);

/// The cluster file of one such node.
std::string machine_yaml(const NodeGroup& node, const std::string& comment);

/// x >= 0 that minimises the sum of squares of (rows[i] · x - 1): each row is an equation divided
/// by its right side. By coordinate descent; deterministic.
std::vector<double> least_squares(const std::vector<std::vector<double>>& rows);

}  // namespace lockstep::plan
