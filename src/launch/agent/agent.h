// The agent of one node: runs the workers of a plan, round after round, until the job has ended.
#pragma once

#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// Runs the plan and returns the exit code: 0; else 1, or with propagate_exit_code the root cause's
/// own code (128 + N for signal N; 75 after a clean pre-emption). The report of a failure goes to
/// stderr. Blocks. Call it from the main thread, before others are started. Error where the workers
/// cannot be started or the nodes cannot meet.
int run_agent(const LaunchPlan& plan);

}  // namespace lockstep::launch
