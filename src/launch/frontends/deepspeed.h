// The deepspeed launcher's command line: one machine, or the machines of a hostfile.
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

/// What the command line asks for: a plan for this machine, or commands that start other machines'
/// agents.
struct DeepspeedRequest {
  LaunchPlan plan;
  struct Command {
    std::string host;  // a name for the report
    std::vector<std::string> argv;
    // What is nobody else's business stands in no arguments, which every user of a machine can
    // list.
    Environment environment;  // added to that of the command itself
    std::string input;        // what its stdin says first
  };
  std::vector<Command> commands;
};

/// Error (config) with all problems. `exported` is added to the variables that other machines get.
DeepspeedRequest plan_deepspeed(
    const std::vector<std::string>& arguments,
    const Environment& environment,
    const Environment& exported = {});

}  // namespace lockstep::launch
