// Changes that make a job fit into memory.
#pragma once

#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// A job with other settings, and the keys that make it so: "parallel.zero_stage=1".
struct Change {
  std::string text;
  Job job;
};

/// What a change saves and costs.
struct Remedy {
  std::string change;
  double bytes = 0;    // of the fullest rank, after it
  double seconds = 0;  // of a step, after it
  bool fits = false;
};

/// Changes that save memory and keep the global batch and the devices: of each setting (ZeRO stage,
/// recomputation, micro-batch, offloading, tensor and pipeline ranks) as little as will do, and
/// `others`, which only the caller can make; where no change is enough, pairs of them. First those
/// that make it fit, the cheapest in time first; then the rest, that which saves most first.
std::vector<Remedy> remedies(
    const Job& job, const Cluster& cluster, const std::vector<Change>& others = {});

}  // namespace lockstep::plan
