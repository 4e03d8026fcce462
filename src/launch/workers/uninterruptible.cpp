#include "launch/workers/uninterruptible.h"

#include "launch/workers/stacks.h"

namespace lockstep::launch {

const Worker* UninterruptibleWatch::look(const WorkerGroup& group, Clock::time_point now) {
  for (const auto& worker : group.workers()) {
    if (worker->status || state_of(worker->pid) != 'D') {
      since_.erase(worker->pid);
    } else if (now - since_.try_emplace(worker->pid, now).first->second >= limit_) {
      return worker.get();
    }
  }
  return nullptr;
}

}  // namespace lockstep::launch
