// Samples measured by `lockstep calibrate`, and a machine description fitted to them.
#pragma once

#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Time of a product [m, k] × [k, n].
struct ProductSample {
  double m = 0, n = 0, k = 0, seconds = 0;
};

/// Forward and backward time of one micro-batch of the job's model on one rank.
struct PassSample {
  Job job;
  double seconds = 0;
};

/// Time of an all-reduce over `members` ranks of this machine.
struct ReduceSample {
  double members = 0, bytes = 0, seconds = 0;
};

/// Forward and backward time of causal ring attention over `members` ranks, with `length` positions
/// per rank and `heads` heads (times sequences).
struct RingSample {
  double members = 1, heads = 0, length = 0, head_dim = 0, seconds = 0;
};

struct MachineSamples {
  std::vector<ProductSample> products16, products32;
  std::vector<PassSample> passes;
  std::vector<ReduceSample> reductions;
  std::vector<RingSample> ring16, ring32;
  double spread =
      0;  // in seconds; after computing for t, ranks wait sqrt(spread x t) for the slowest rank
  double copy_bandwidth = 0;    // copy rate in bytes/s, reads plus writes
  double update_bandwidth = 0;  // optimizer rate in bytes/s, reads plus writes
  double memory_bytes = 0;      // memory per rank
  int ranks = 1;                // number of ranks that ran the measurement concurrently
};

/// Fits non-negative rates by least squares of relative errors and returns one node of `ranks`
/// devices. Fits in three steps: peak and short-side terms of each type from the products; then
/// attention, element-wise kernels and softmax of each type and the minimum kernel time from the
/// passes; then bandwidth and latency from the all-reduces.
NodeGroup fit_machine(const MachineSamples& samples);

/// Returns a cluster file that contains one such node.
std::string machine_yaml(const NodeGroup& node, const std::string& comment);

/// Returns the x >= 0 that minimizes the sum of (rows[i] · x - 1)^2. Each row is an equation
/// divided by its right side. Uses coordinate descent and is deterministic.
std::vector<double> least_squares(const std::vector<std::vector<double>>& rows);

}  // namespace lockstep::plan
