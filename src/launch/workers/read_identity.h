// Identity of this process, read from the environment variables that launchers set.
#pragma once

#include <optional>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and related variables, as set by
/// torchrun, accelerate and deepspeed. Returns nullopt if neither RANK nor WORLD_SIZE is set.
/// Throws Error (config) that names every missing or invalid variable.
std::optional<WorkerIdentity> read_identity(const Environment& environment);

}  // namespace lockstep::launch
