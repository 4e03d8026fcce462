// The environment of a worker: torchrun's variables, so that Python and C++ workers join alike.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::launch {

using Environment = std::map<std::string, std::string>;

/// This process's own environment.
Environment current_environment();
/// As exec wants it: NAME=VALUE.
std::vector<std::string> flatten(const Environment& environment);

/// Who a worker is, and where it meets the others.
struct WorkerIdentity {
  int rank = 0, local_rank = 0, group_rank = 0, role_rank = 0;
  int world_size = 1, local_world_size = 1, group_world_size = 1, role_world_size = 1;
  std::string role = "default";
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  int restart_count = 0, max_restarts = 0;
  std::string run_id = "none";
  int round = 0;             // counts every start of the workers, after failures or not
  std::string job;           // drawn for each launch: the same in all its rounds; empty: none
  int first_world_size = 0;  // of round 0; 0: unknown
  int term = 0;              // how many hosts the job had before the one of this round
  bool agent_store = true;   // an agent hosts the store at the master's address: rank 0 must not
  std::string error_file;    // empty: none
};

/// Adds the variables of `identity`. NCCL's error handling is kept where it is set.
void set_identity(Environment& environment, const WorkerIdentity& identity);

/// LOCKSTEP_TERMINAL_WIDTH: the columns of this process's stderr where that is a terminal that can
/// redraw a line, else unset. Workers write to a pipe, and are told by it that a terminal is behind
/// it.
void set_terminal_width(Environment& environment);

/// OMP_NUM_THREADS for each of `workers`, where it is not set: usable cores divided by workers, at
/// least 1, which is told. Where it gives all of them together more threads than there are CPUs,
/// OMP_WAIT_POLICY=passive, unless that is set: threads that spin would keep others from running.
void share_cores(Environment& environment, int workers);

/// Whether OMP_NUM_THREADS gives `workers` more threads than there are CPUs, several each.
bool has_too_many_threads(const Environment& environment, int workers);

}  // namespace lockstep::launch
