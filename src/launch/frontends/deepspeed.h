// Command line of the deepspeed launcher, for one machine or for the machines of a hostfile.
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

/// Parsed command line: a plan for this machine, or commands that start the agents of other
/// machines.
struct DeepspeedRequest {
  LaunchPlan plan;
  struct Command {
    std::string host;  // name in reports
    std::vector<std::string> argv;
    // Secrets are not passed as arguments, because all users of a machine can see these.
    Environment environment;  // added to the command's own environment
    std::string input;        // first line of its stdin
  };
  std::vector<Command> commands;
};

/// Makes the plan or the commands. `exported` contains additional variables for other machines.
/// Throws Error (config) that lists all problems.
DeepspeedRequest plan_deepspeed(
    const std::vector<std::string>& arguments,
    const Environment& environment,
    const Environment& exported = {});

}  // namespace lockstep::launch
