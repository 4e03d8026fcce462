// SLURM and MPI jobs, detected by the variables that they set for each task.
#pragma once

#include <optional>
#include <string>

#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// This process's place in a job started by a cluster manager or mpirun.
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

/// Makes this task's plan part of the job. With one task per node, the agents use a static
/// rendezvous at the first node. With several, this task is one worker with the manager's rank. No
/// effect for a job of one task. Throws Error (config) if the first node is unknown (set
/// MASTER_ADDR).
void join_cluster(const ClusterPlace& place, const Environment& environment, LaunchPlan& plan);

}  // namespace lockstep::launch
