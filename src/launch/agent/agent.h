// Agent of one node: runs the workers of a plan, one round after another, until the job ends.
#pragma once

#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// Runs the plan and returns the exit code: 0 on success; otherwise 1, or with propagate_exit_code
/// the root cause's own code (128 + N for signal N; 75 after a clean preemption). Writes failure
/// reports to stderr. Blocks. Call it from the main thread before starting other threads. Throws
/// Error if workers cannot be started or the nodes cannot connect.
int run_agent(const LaunchPlan& plan);

}  // namespace lockstep::launch
