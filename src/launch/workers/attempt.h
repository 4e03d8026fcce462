// One attempt to run this machine's workers, from their start until the last process has ended.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "launch/workers/failure_report.h"
#include "launch/workers/guard.h"
#include "launch/workers/worker_group.h"

namespace lockstep::launch {

enum class AttemptEnd {
  kSucceeded,
  kFailed,       // a worker failed
  kSignalled,    // a signal arrived and was forwarded to the workers
  kPreempted,    // workers saved and exited with kExitPreempted
  kInterrupted,  // stopped by AttemptOptions::interruption
};

/// Reason to stop this machine's workers although none of them failed.
enum class Interruption {
  kNone,
  kFailure,     // a worker of another node failed: stop immediately
  kMembership,  // the job continues with other nodes: workers may save first
};

struct AttemptResult {
  AttemptEnd end = AttemptEnd::kSucceeded;
  int signal = 0;                 // if `end` is kSignalled
  std::vector<Failure> failures;  // in order of detection
  /// Last step that a worker began. -1: no step; nullopt: workers do not report steps.
  std::optional<int64_t> step;
  /// A worker survived SIGKILL. It is stuck in the kernel and still occupies its device.
  bool stuck = false;
  /// Exit code for a shell: that of the root cause, 75, or 128 + the signal.
  int exit_code = 0;
};

struct AttemptOptions {
  std::chrono::milliseconds signal_grace{
      120000};  // time between a forwarded signal and SIGKILL, in which workers can save
  std::chrono::milliseconds failure_grace{700};  // time between SIGTERM and SIGKILL after a failure
  /// Time for which a worker may be in uninterruptible sleep. After this time it is killed, and the
  /// job is not restarted. 0: unlimited.
  std::chrono::milliseconds uninterruptible{0};
  /// Called after every event. The workers are stopped if the result is not kNone. To cause a call,
  /// wake the guard's loop.
  std::function<Interruption()> interruption;
  /// Called with the outcome of the attempt before the workers are stopped, so that other nodes
  /// learn of a failure immediately.
  std::function<void(const AttemptResult&)> ending;
};

/// Starts the workers and forwards their output and signals. Returns when all their processes have
/// ended.
AttemptResult run_attempt(
    Guard& guard, std::vector<WorkerSpec> specs, const AttemptOptions& options);

}  // namespace lockstep::launch
