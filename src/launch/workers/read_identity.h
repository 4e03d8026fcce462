// Identity of this process from the variables that launchers set.
#pragma once

#include <optional>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and related variables (set by
/// torchrun, accelerate and deepspeed). Returns nullopt if RANK and WORLD_SIZE are not set. Throws
/// Error (config) naming every missing or invalid variable.
std::optional<WorkerIdentity> read_identity(const Environment& environment);

}  // namespace lockstep::launch
