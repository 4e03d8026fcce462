// Machine measured by `lockstep calibrate`: samples of its operations, and the rates fitted to
// them.
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

/// Time of the forward and backward pass of one micro-batch of the job's model on one rank.
struct PassSample {
  Job job;
  double seconds = 0;
};

/// Time of an all-reduce over `members` ranks of this machine.
struct ReduceSample {
  double members = 0, bytes = 0, seconds = 0;
};

/// Time of causal ring attention, forward and backward, over `members` ranks with `length`
/// positions each and `heads` heads (times sequences).
struct RingSample {
  double members = 1, heads = 0, length = 0, head_dim = 0, seconds = 0;
};

struct MachineSamples {
  std::vector<ProductSample> products16, products32;
  std::vector<PassSample> passes;
  std::vector<ReduceSample> reductions;
  std::vector<RingSample> ring16, ring32;
  double spread =
      0;  // seconds: after computing for t, ranks wait sqrt(spread x t) for the slowest one
  double copy_bandwidth = 0;    // bytes/s, reads plus writes, of a copy
  double update_bandwidth = 0;  // bytes/s, reads plus writes, of the optimizer
  double memory_bytes = 0;      // per rank
  int ranks = 1;                // number of ranks that measured concurrently
};

/// Fits non-negative rates by least squares of relative errors. First the peak and the short-side
/// terms of each type from the products, then attention, element-wise kernels and softmax of each
/// type and the minimum kernel time from the passes, then bandwidth and latency from the
/// all-reduces. Returns one node of `ranks` devices.
NodeGroup fit_machine(const MachineSamples& samples);

/// Returns a cluster file with one such node.
std::string machine_yaml(const NodeGroup& node, const std::string& comment);

/// Returns x >= 0 that minimizes the sum of squares of (rows[i] · x - 1); each row is an equation
/// divided by its right side. Coordinate descent; deterministic.
std::vector<double> least_squares(const std::vector<std::vector<double>>& rows);

}  // namespace lockstep::plan
