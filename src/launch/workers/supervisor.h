// The worker supervisor: starts the workers of this machine, watches them, tells who failed, and
// leaves nothing.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

struct SupervisorOptions {
  int workers = 1;
  std::vector<std::string> argv;   // the program and its arguments, the same for every worker
  std::function<int()> body = {};  // instead: workers are copies of this process that call this
  Environment environment = {};    // added to this process's own
  std::string name = "";           // in the report; empty: argv's file name
  std::chrono::milliseconds signal_grace{
      120000};  // from a forwarded signal to SIGKILL: time to save a checkpoint
  std::chrono::milliseconds failure_grace{700};  // from a failure to SIGKILL for the others
  size_t report_lines = 20;
};

/// Runs `workers` workers until all have ended and returns the exit code of the job: 0; the first
/// failed worker's own (128 + N for signal N); 75 where workers saved and left. Rank 0's stdout
/// passes through byte for byte, the others' by whole lines, as does every stderr. A failure's
/// report goes to stderr. SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded; a second one ends the
/// workers at once. Workers get torchrun's variables and meet in a store that this process hosts on
/// loopback. LOCKSTEP_TERMINAL_WIDTH holds the terminal's columns where stderr is one. Blocks. Call
/// it from the main thread, before others are started; one at a time in a process. Error
/// (environment) where a worker cannot be started.
int supervise(const SupervisorOptions& options);

}  // namespace lockstep::launch
