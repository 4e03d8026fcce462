// Command lines of torchrun and of `python -m torch.distributed.launch`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

std::span<const OptionSpec> torchrun_options();
OptionRules torchrun_rules();

/// Makes the plan. With `distributed_launch`, the command line is that of torch.distributed.launch,
/// whose workers get --local-rank=N unless --use-env is given. Throws Error (config) that lists all
/// problems.
LaunchPlan plan_torchrun(
    const std::vector<std::string>& arguments,
    const Environment& environment,
    bool distributed_launch = false);

}  // namespace lockstep::launch
