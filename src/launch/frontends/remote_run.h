// Running the commands that start other machines' agents.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {

/// Runs all commands until they have ended and returns the first failed one's exit code. Their
/// lines are shown with the host's name before them where there are several. A signal closes their
/// stdin, by which the agents know that the job is to end; those that do not end in time are
/// killed. Blocks; from the main thread.
int run_remotely(const std::vector<DeepspeedRequest::Command>& commands);

}  // namespace lockstep::launch
