// Which launcher's words a command line is in, and what it asks for.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"
#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

enum class Surface { kTorchrun, kDistributedLaunch, kAccelerate, kDeepspeed };

/// From --compat where it is given, else the first of torchrun, accelerate and deepspeed that knows
/// every option. Error (config) where none does: it says which option belongs to which launcher.
Surface surface_of(const std::vector<std::string>& arguments);

/// A command line that was read.
struct LaunchRequest {
  std::string answer;  // a text to print, and nothing to run: --help, --print-completion
  LaunchPlan plan;
  std::vector<DeepspeedRequest::Command>
      remotes;  // where not empty: these start the agents; the plan is not run here
};

/// Reads `lockstep launch`'s arguments. SLURM's and MPI's variables fill in what is not given.
/// Error (config).
LaunchRequest read_launch(
    const std::vector<std::string>& arguments, const Environment& environment);

/// Runs what was read, and returns the exit code.
int run_launch(const LaunchRequest& request);

}  // namespace lockstep::launch
