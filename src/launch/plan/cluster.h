// SLURM and MPI jobs, recognised from the variables that they set for each task.
#pragma once

#include <optional>
#include <string>

#include "launch/plan/launch_plan.h"

namespace lockstep::launch {

/// This process's place in a job that a cluster manager or mpirun started.
struct ClusterPlace {
  std::string manager;  // "SLURM", "Open MPI", ...
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int node = 0, nodes = 1;
  std::string first_host;  // where rank 0 runs; empty where unknown
  int port = 0;            // the same on every node: from the job's number
};

/// Nothing where no variables of a task are set. Error (config) where they contradict each other.
std::optional<ClusterPlace> find_cluster(const Environment& environment);

/// Makes the plan of this task a part of the job. One task a node: the agents meet at the first
/// node, statically. Several: this task is one worker, with its rank from the manager. Nothing for
/// a job of one task. Error (config) where the first node is not known (MASTER_ADDR says it).
void join_cluster(const ClusterPlace& place, const Environment& environment, LaunchPlan& plan);

}  // namespace lockstep::launch
