// Environment variables of a worker. They are those of torchrun, for Python and C++ workers.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::launch {

using Environment = std::map<std::string, std::string>;

/// Returns the environment of this process.
Environment current_environment();
/// Returns the variables in the form NAME=VALUE, as exec expects.
std::vector<std::string> flatten(const Environment& environment);

/// Rank and rendezvous of a worker.
struct WorkerIdentity {
  int rank = 0, local_rank = 0, group_rank = 0, role_rank = 0;
  int world_size = 1, local_world_size = 1, group_world_size = 1, role_world_size = 1;
  std::string role = "default";
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  int restart_count = 0, max_restarts = 0;
  std::string run_id = "none";
  int round = 0;              // counts every start of the workers, after failures or not
  std::string job;            // the same in all rounds; empty: none
  bool job_is_unique = true;  // random per launch; false: torchrun's id, which two jobs may share
  int first_world_size = 0;   // of round 0; 0: unknown
  int term = 0;               // number of earlier coordinators of the job
  bool agent_store = true;    // an agent hosts the store at the master's address: rank 0 must not
  std::string error_file;     // empty: none
};

/// Adds the variables of `identity`. Keeps an existing setting for NCCL's error handling.
void set_identity(Environment& environment, const WorkerIdentity& identity);

/// Sets LOCKSTEP_TERMINAL_WIDTH to the columns of this process's stderr if it is a terminal that
/// can redraw a line; otherwise unsets it. Workers write to a pipe and learn from the variable that
/// their output is shown on a terminal.
void set_terminal_width(Environment& environment);

/// If OMP_NUM_THREADS is unset, sets it for each of `workers` workers to the number of usable cores
/// divided by `workers`, at least 1, and logs it. If there are more threads than CPUs in total,
/// also sets OMP_WAIT_POLICY=passive unless it is set, so that spinning threads do not block
/// others.
void share_cores(Environment& environment, int workers);

/// Returns true if OMP_NUM_THREADS gives each of `workers` workers several threads, and the total
/// exceeds the number of CPUs.
bool has_too_many_threads(const Environment& environment, int workers);

}  // namespace lockstep::launch
