// Selects the front end for the launcher whose options a command line uses.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"
#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

enum class Surface { kTorchrun, kDistributedLaunch, kAccelerate, kDeepspeed };

/// Returns the value of --compat if given, otherwise the first of torchrun, accelerate and
/// deepspeed that has all options. If none has, throws Error (config) that lists the launcher of
/// each option.
Surface surface_of(const std::vector<std::string>& arguments);

/// Parsed command line.
struct LaunchRequest {
  std::string answer;  // output of --help or --print-completion; then nothing is run
  LaunchPlan plan;
  std::vector<DeepspeedRequest::Command>
      remotes;  // commands that start the agents; if not empty, the plan is not run here
};

/// Parses the arguments of `lockstep launch`. Variables that SLURM or MPI set are defaults. Throws
/// Error (config).
LaunchRequest read_launch(
    const std::vector<std::string>& arguments, const Environment& environment);

/// Runs the request and returns the exit code.
int run_launch(const LaunchRequest& request);

}  // namespace lockstep::launch
