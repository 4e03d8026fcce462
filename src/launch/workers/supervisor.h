// Worker supervisor: starts this machine's workers, watches them, reports failures, and leaves no
// process running.
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
  std::vector<std::string> argv;   // program and arguments, the same for every worker
  std::function<int()> body = {};  // instead: workers are copies of this process that call this
  Environment environment = {};    // added to this process's own
  std::string name = "";           // in the report; empty: argv's file name
  std::chrono::milliseconds signal_grace{
      120000};  // from a forwarded signal to SIGKILL: time to save a checkpoint
  std::chrono::milliseconds failure_grace{700};  // from a failure to SIGKILL of the other workers
  size_t report_lines = 20;
};

/// Runs `workers` workers until all have ended and returns the job's exit code: 0; the first failed
/// worker's own (128 + N for signal N); 75 if workers saved and left. Rank 0's stdout is passed
/// through unchanged; other output is passed line by line. Failure reports go to stderr. SIGTERM,
/// SIGINT, SIGHUP and SIGQUIT are forwarded; a second one kills the workers. Workers get torchrun's
/// variables and a store hosted by this process on loopback. LOCKSTEP_TERMINAL_WIDTH is set to the
/// terminal's columns if stderr is a terminal. Blocks. Call from the main thread before starting
/// other threads; one at a time per process. Throws Error (environment) if a worker cannot be
/// started.
int supervise(const SupervisorOptions& options);

}  // namespace lockstep::launch
