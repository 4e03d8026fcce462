// Command line and configuration file of accelerate launch. Settings of the training are passed to
// the workers in the variables that accelerate sets (and that `lockstep train` reads).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

std::span<const OptionSpec> accelerate_options();
OptionRules accelerate_rules();

/// A parsed request of accelerate launch. With a multi-node DeepSpeed launcher, `deepspeed` holds
/// the command line of the deepspeed front end that starts the nodes, and the plan's environment
/// must be exported to them.
struct AccelerateRequest {
  LaunchPlan plan;
  std::vector<std::string> deepspeed;
};

/// Error (config) with all problems.
AccelerateRequest plan_accelerate(
    const std::vector<std::string>& arguments, const Environment& environment);

/// Default path of the configuration file; empty if it does not exist.
std::string default_accelerate_config(const Environment& environment);

}  // namespace lockstep::launch
