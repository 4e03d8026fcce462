// Changes that make a job fit into memory.
#pragma once

#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Job with changed settings, and the changed keys: "parallel.zero_stage=1".
struct Change {
  std::string text;
  Job job;
};

/// Effect of a change on memory and time.
struct Remedy {
  std::string change;
  double bytes = 0;    // memory of the largest rank after the change
  double seconds = 0;  // step time after the change
  bool fits = false;
};

/// Returns changes that save memory and keep the global batch and the devices: the minimum change
/// of each setting (ZeRO stage, recomputation, micro-batch, offloading, tensor and pipeline ranks),
/// and `others`, which only the caller can apply. If no single change is sufficient, tries pairs.
/// The result lists changes that make the job fit (fastest first), then the rest (largest saving
/// first).
std::vector<Remedy> remedies(
    const Job& job, const Cluster& cluster, const std::vector<Change>& others = {});

}  // namespace lockstep::plan
