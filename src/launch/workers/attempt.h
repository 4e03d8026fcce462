// One attempt of this machine's workers, from start until the last process is gone.
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
  kSignalled,    // a signal arrived and was forwarded
  kPreempted,    // workers saved and left with kExitPreempted
  kInterrupted,  // AttemptOptions::interruption
};

/// Reasons to stop this machine's workers although none of them failed.
enum class Interruption {
  kNone,
  kFailure,     // on another node: stop at once
  kMembership,  // the job continues with other nodes: workers may save
};

struct AttemptResult {
  AttemptEnd end = AttemptEnd::kSucceeded;
  int signal = 0;                 // with kSignalled
  std::vector<Failure> failures;  // in the order seen
  /// The last step that a worker began; -1: none; nullopt: workers do not report steps.
  std::optional<int64_t> step;
  /// A worker survived SIGKILL: it hangs in the kernel and holds its device.
  bool stuck = false;
  /// Exit code for a shell: the root cause's own, 75, or 128 + the signal.
  int exit_code = 0;
};

struct AttemptOptions {
  std::chrono::milliseconds signal_grace{
      120000};                                   // from a forwarded signal to SIGKILL: time to save
  std::chrono::milliseconds failure_grace{700};  // from a failure's SIGTERM to SIGKILL
  /// How long a worker may be in uninterruptible sleep before it is killed and the job is not
  /// restarted; 0: unlimited.
  std::chrono::milliseconds uninterruptible{0};
  /// Called after every event; any result but kNone stops the workers. Wake the guard's loop to
  /// trigger the call.
  std::function<Interruption()> interruption;
  /// Called with the attempt's outcome before the workers are stopped, so that other nodes hear of
  /// a failure at once.
  std::function<void(const AttemptResult&)> ending;
};

/// Starts the workers, forwards output and signals, and returns when none of their processes is
/// left.
AttemptResult run_attempt(
    Guard& guard, std::vector<WorkerSpec> specs, const AttemptOptions& options);

}  // namespace lockstep::launch
