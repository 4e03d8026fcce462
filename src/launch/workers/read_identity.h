// Who this process is, from the variables that a launcher sets.
#pragma once

#include <optional>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// From RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and their like (torchrun's,
/// accelerate's and deepspeed's launchers set them); nothing where RANK and WORLD_SIZE are not set.
/// Error (config) naming every variable that is missing or is no number.
std::optional<WorkerIdentity> read_identity(const Environment& environment);

}  // namespace lockstep::launch
