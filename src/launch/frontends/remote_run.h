// Runs the commands that start the agents of other machines.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {

/// Runs all commands until they have ended. Returns the exit code of the first one that failed. If
/// there are several commands, output lines are prefixed with the name of the host. On a signal,
/// the stdin of all commands is closed, so that the agents stop. Commands that do not end in time
/// are killed. Blocks. Must be called on the main thread.
int run_remotely(const std::vector<DeepspeedRequest::Command>& commands);

}  // namespace lockstep::launch
