// One run of the workers of this machine, from start to the last process gone.
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
  kSignalled,    // a signal came and was forwarded
  kPreempted,    // workers saved and left with kExitPreempted
  kInterrupted,  // AttemptOptions::interruption
};

/// Why the workers of this machine are to end though none of them failed.
enum class Interruption {
  kNone,
  kFailure,     // elsewhere: at once
  kMembership,  // the job goes on with other nodes: workers may save what they have done
};

struct AttemptResult {
  AttemptEnd end = AttemptEnd::kSucceeded;
  int signal = 0;                 // with kSignalled
  std::vector<Failure> failures;  // in the order seen
  /// The step that a worker began last; -1: none has begun one; nothing: they tell of no steps.
  std::optional<int64_t> step;
  /// Some worker did not end though it got SIGKILL: it hangs in the kernel, and holds its device.
  bool stuck = false;
  /// The exit code that tells it to a shell: the root cause's own, 75, or 128 + the signal.
  int exit_code = 0;
};

struct AttemptOptions {
  std::chrono::milliseconds signal_grace{
      120000};                                   // from a forwarded signal to SIGKILL: time to save
  std::chrono::milliseconds failure_grace{700};  // from a failure's SIGTERM to SIGKILL
  /// How long a worker may be in uninterruptible sleep before it is killed and the job is not
  /// started again; 0: for ever.
  std::chrono::milliseconds uninterruptible{0};
  /// Asked after every event; anything but kNone ends the workers. Wake the guard's loop to have it
  /// asked.
  std::function<Interruption()> interruption;
  /// Told how the attempt ends before the workers are ended, so that other nodes hear of a failure
  /// at once.
  std::function<void(const AttemptResult&)> ending;
};

/// Starts the workers, passes on what they print, forwards signals, and returns when no process of
/// theirs is left.
AttemptResult run_attempt(
    Guard& guard, std::vector<WorkerSpec> specs, const AttemptOptions& options);

}  // namespace lockstep::launch
