// Initialization of a worker process: creates a process group from the launcher's environment
// variables.
#pragma once

#include <chrono>

#include "train/machine/rank_context.h"

namespace lockstep {

struct JoinOptions {
  enum class Device { kGpuIfAny, kCpu } device = Device::kGpuIfAny;
  /// Timeout of collectives.
  std::chrono::seconds timeout = std::chrono::minutes(30);
  /// If true, CPU ranks on the same machine exchange tensors through shared memory.
  bool shared_memory = true;
};

/// Joins the job for which this process was started by `lockstep launch`, torchrun, or the launcher
/// of accelerate or deepspeed. Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. If
/// none of them is set, returns a job with one rank. Afterwards, log lines start with the rank, and
/// tensor memory is reused between steps (ops/host_memory.h). Must be called once on every rank,
/// before it creates tensors. Blocks until all ranks have joined. Throws Error (config) if the
/// variables are incomplete, and Error (environment) if there is no GPU for this local rank or
/// another rank cannot be reached.
train::RankContext join(const JoinOptions& options = {});

}  // namespace lockstep
