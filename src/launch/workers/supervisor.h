// Worker supervisor: starts this machine's workers, watches them, reports failures, and ends all
// their processes.
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
  std::vector<std::string> argv;   // program and arguments of every worker
  std::function<int()> body = {};  // if set, each worker is a copy of this process that calls it
  Environment environment = {};    // added to this process's environment
  std::string name = "";           // name in the report; empty: the file name in argv
  std::chrono::milliseconds signal_grace{120000};  // from a forwarded signal to SIGKILL, to save
  std::chrono::milliseconds failure_grace{700};    // time between a failure and SIGKILL
  size_t report_lines = 20;
};

/// Runs `workers` workers, waits until all have ended, and returns the job's exit code. The code is
/// 0 on success, that of the first failed worker (128 + N for signal N), or 75 if workers saved and
/// exited.
///
/// Rank 0's stdout is forwarded unchanged; all other output is forwarded line by line. Failure
/// reports are written to stderr. SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded; a second
/// signal kills the workers. Workers get torchrun's environment variables and a store that this
/// process hosts on loopback. If stderr is a terminal, LOCKSTEP_TERMINAL_WIDTH is set to its
/// columns.
///
/// Must be called on the main thread, before other threads are started, and only once at a time.
/// Blocks. Throws Error (environment) if a worker cannot be started.
int supervise(const SupervisorOptions& options);

}  // namespace lockstep::launch
