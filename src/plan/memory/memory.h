// Memory of a rank by kind at the peak of each phase of a step.
#pragma once

#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Bytes on one rank's device. Offloaded memory is counted in `host`.
struct Memory {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // activations of all micro-batches in flight
  double working = 0;      // temporaries of the current (or recomputed) block
  double logits = 0;       // logits of the head (last stage only)
  double gathered = 0;     // gathered units
  double buckets = 0;      // communication buffers
  double fragmentation = 0;
  double context = 0;  // driver, libraries and communicators
  double kept = 0;     // in-memory checkpoints (checkpoint.in_memory_replicas), on CPUs
  double host = 0;     // bytes in host memory
  double nvme = 0;     // bytes in files

  double total() const;  // memory on the device
  /// Returns the memory without fragmentation. An allocator that runs out of memory releases its
  /// fragments and continues, but slower.
  double least() const { return total() - fragmentation; }
};

/// Peak memory of each phase: forward, backward, and optimizer step.
struct StageMemory {
  int64_t stage = 0;
  int64_t blocks = 0;
  double in_flight = 0;  // micro-batches in flight, in units of the rank's stages
  Memory peak;
};

/// Returns the memory of each pipeline rank, [pipeline].
std::vector<StageMemory> estimate_memory(const Job& job);
/// Returns the stage with the largest peak.
const StageMemory& largest(const std::vector<StageMemory>& stages);

/// Returns true if every rank has enough device and host memory.
bool fits(const Job& job, const Cluster& cluster);

/// Returns the maximum number of blocks, summed over its stages, that each pipeline rank can hold
/// in the memory of its devices, [pipeline].
std::vector<int64_t> most_blocks(const Job& job, const Cluster& cluster);

/// Returns the device memory available to a job, excluding the driver's memory.
double usable_bytes(const Device& device);

}  // namespace lockstep::plan
