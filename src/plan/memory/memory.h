// The memory of a rank, by kind, at the peak of each phase of a step.
#pragma once

#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Bytes on one rank of the device; what is offloaded is in `host`.
struct Memory {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // kept from forward to backward, of all micro-batches in flight
  double working = 0;      // of the block that is being computed (recomputed)
  double logits = 0;       // of the head, last stage
  double gathered = 0;     // units whose shards were gathered
  double buckets = 0;      // of communication
  double fragmentation = 0;
  double context = 0;  // of the driver, the libraries and the communicators
  double kept = 0;     // copies of the state for a restart (checkpoint.replicas), on CPUs
  double host = 0;     // not on the device
  double nvme = 0;     // in files

  double total() const;  // on the device
  /// What it cannot do without: an allocator that runs short gives its fragments back and goes on,
  /// slower.
  double least() const { return total() - fragmentation; }
};

/// The peak of each phase: forward and backward at their fullest, and the optimizer's step.
struct StageMemory {
  int64_t stage = 0;
  int64_t blocks = 0;
  double in_flight = 0;  // micro-batches whose activations are held, in whole stages of the rank
  Memory peak;
};

/// One entry for each pipeline rank, [pipeline].
std::vector<StageMemory> estimate_memory(const Job& job);
/// The stage that needs the most.
const StageMemory& largest(const std::vector<StageMemory>& stages);

/// Whether every rank's device has the memory that its pipeline rank needs, and its host what is
/// offloaded.
bool fits(const Job& job, const Cluster& cluster);

/// The most blocks that each pipeline rank, in all of its stages, could hold in the memory of its
/// devices, [pipeline].
std::vector<int64_t> most_blocks(const Job& job, const Cluster& cluster);

/// What a device has for a job: its memory less what the driver keeps.
double usable_bytes(const Device& device);

}  // namespace lockstep::plan
