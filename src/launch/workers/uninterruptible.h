// Workers that hang in the kernel: torchelastic's TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT.
#pragma once

#include <chrono>
#include <map>

#include "launch/workers/worker_group.h"

namespace lockstep::launch {

/// Notes how long each worker has been in uninterruptible sleep (state D), as far as looks at it
/// tell: a worker that is in another state at a look begins anew.
class UninterruptibleWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit UninterruptibleWatch(std::chrono::milliseconds limit) : limit_(limit) {}
  /// Looks at the workers that run; the first that has hung for the limit, else null.
  const Worker* look(const WorkerGroup& group, Clock::time_point now);

 private:
  std::chrono::milliseconds limit_;
  std::map<pid_t, Clock::time_point> since_;
};

}  // namespace lockstep::launch
