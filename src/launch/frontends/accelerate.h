// Command line and configuration file of accelerate launch. Training settings are passed to the
// workers in the environment variables that accelerate sets (and that `lockstep train` reads).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

std::span<const OptionSpec> accelerate_options();
OptionRules accelerate_rules();

/// Parsed command line of accelerate launch. With a multi-node DeepSpeed launcher, `deepspeed`
/// contains the command line of the deepspeed front end, which starts the nodes. The plan's
/// environment must then be exported to the nodes.
struct AccelerateRequest {
  LaunchPlan plan;
  std::vector<std::string> deepspeed;
};

/// Throws Error (config) that lists all problems.
AccelerateRequest plan_accelerate(
    const std::vector<std::string>& arguments, const Environment& environment);

/// Returns the default path of the configuration file. Empty if the file does not exist.
std::string default_accelerate_config(const Environment& environment);

}  // namespace lockstep::launch
