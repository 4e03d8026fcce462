// accelerate launch's command line and its configuration file, as far as they say what to start;
// what they say of training goes to the workers as the variables that accelerate sets (and that our
// `train` reads).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

std::span<const OptionSpec> accelerate_options();
OptionRules accelerate_rules();

/// What accelerate launch asks for. With a multi-node DeepSpeed launcher, `deepspeed` holds the
/// command line of the deepspeed surface that starts the nodes, and the plan's environment is to be
/// exported to them.
struct AccelerateRequest {
  LaunchPlan plan;
  std::vector<std::string> deepspeed;
};

/// Error (config) with all problems.
AccelerateRequest plan_accelerate(
    const std::vector<std::string>& arguments, const Environment& environment);

/// The configuration file that is taken where none is named; empty where there is none.
std::string default_accelerate_config(const Environment& environment);

}  // namespace lockstep::launch
