// Detects workers that are stuck in the kernel (TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT).
#pragma once

#include <chrono>
#include <map>

#include "launch/workers/worker_group.h"

namespace lockstep::launch {

/// Measures for how long each worker has been in uninterruptible sleep (state D), by sampling. A
/// sample in another state resets the time.
class UninterruptibleWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit UninterruptibleWatch(std::chrono::milliseconds limit) : limit_(limit) {}
  /// Samples the running workers. Returns the first one that has reached the limit, or null.
  const Worker* look(const WorkerGroup& group, Clock::time_point now);

 private:
  std::chrono::milliseconds limit_;
  std::map<pid_t, Clock::time_point> since_;
};

}  // namespace lockstep::launch
