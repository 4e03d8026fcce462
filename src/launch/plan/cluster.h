// Detects SLURM and MPI jobs by the environment variables that are set for each task.
#pragma once

#include <optional>
#include <string>

#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// Rank and host of this process in a job that a cluster manager or mpirun started.
struct ClusterPlace {
  std::string manager;  // "SLURM", "Open MPI", ...
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int node = 0, nodes = 1;
  std::string first_host;  // host of rank 0; empty if unknown
  int port = 0;            // the same on every node, derived from the job's number
};

/// Returns nullopt if no such variables are set. Throws Error (config) if they contradict each
/// other.
std::optional<ClusterPlace> find_cluster(const Environment& environment);

/// Adds the task's rank and rendezvous to the plan. With one task per node, this task is an agent,
/// and the agents use a static rendezvous at the first node. With several tasks per node, this task
/// is one worker with the manager's rank. Does nothing if the job has only one task. Throws Error
/// (config) if the first node is unknown (the user can set MASTER_ADDR).
void join_cluster(const ClusterPlace& place, const Environment& environment, LaunchPlan& plan);

}  // namespace lockstep::launch
