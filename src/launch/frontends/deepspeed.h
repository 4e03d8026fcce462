// Command line of the deepspeed launcher: one machine, or the machines of a hostfile.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/plan/hostfile.h"
#include "launch/plan/launch_plan.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

std::span<const OptionSpec> deepspeed_options();
OptionRules deepspeed_rules();

/// A parsed request: a plan for this machine, or commands that start the agents of other machines.
struct DeepspeedRequest {
  LaunchPlan plan;
  struct Command {
    std::string host;  // a name for the report
    std::vector<std::string> argv;
    // Secrets are not passed as arguments, which every user of a machine can list.
    Environment environment;  // added to the command's own environment
    std::string input;        // first line of its stdin
  };
  std::vector<Command> commands;
};

/// Throws Error (config) with all problems. `exported` is added to the variables for other
/// machines.
DeepspeedRequest plan_deepspeed(
    const std::vector<std::string>& arguments,
    const Environment& environment,
    const Environment& exported = {});

}  // namespace lockstep::launch
