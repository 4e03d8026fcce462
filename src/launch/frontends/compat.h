// Selection of a front end: the launcher whose options a command line uses.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"
#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

enum class Surface { kTorchrun, kDistributedLaunch, kAccelerate, kDeepspeed };

/// Returns --compat's value if given, otherwise the first of torchrun, accelerate and deepspeed
/// that knows every option. Throws Error (config), listing each option's launcher, if none does.
Surface surface_of(const std::vector<std::string>& arguments);

/// A command line that was read.
struct LaunchRequest {
  std::string answer;  // output of --help or --print-completion; nothing is run
  LaunchPlan plan;
  std::vector<DeepspeedRequest::Command>
      remotes;  // if not empty: commands that start the agents; the plan is not run here
};

/// Parses the arguments of `lockstep launch`. Variables of SLURM and MPI are defaults. Throws Error
/// (config).
LaunchRequest read_launch(
    const std::vector<std::string>& arguments, const Environment& environment);

/// Runs the request and returns the exit code.
int run_launch(const LaunchRequest& request);

}  // namespace lockstep::launch
