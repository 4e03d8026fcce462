// Agent of one node: runs the workers of a plan, one round after another, until the job ends.
#pragma once

#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// Runs the plan and returns the exit code. The code is 0 on success. Otherwise it is 1, or with
/// propagate_exit_code that of the root cause (128 + N for signal N; 75 after a clean preemption).
/// Writes failure reports to stderr. Blocks until the job ends. Must be called on the main thread,
/// before other threads are started. Throws Error if workers cannot be started or the nodes cannot
/// connect.
int run_agent(const LaunchPlan& plan);

}  // namespace lockstep::launch
