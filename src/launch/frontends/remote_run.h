// Runs the commands that start the agents of other machines.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {

/// Runs all commands until they have ended and returns the exit code of the first that failed. With
/// several commands, output lines are prefixed with the host's name. A signal closes their stdin,
/// which tells the agents to stop; commands that do not end in time are killed. Blocks; call from
/// the main thread.
int run_remotely(const std::vector<DeepspeedRequest::Command>& commands);

}  // namespace lockstep::launch
