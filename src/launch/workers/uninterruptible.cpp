#include "launch/workers/uninterruptible.h"

#include <fstream>
#include <string>

#include "base/format.h"

namespace lockstep::launch {
namespace {

/// The letter that the kernel tells; 0 where there is no such process.
char state_of(pid_t pid) {
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text);
  const size_t end = text.rfind(") ");  // the name before it may hold anything
  return end == std::string::npos || end + 2 >= text.size() ? '\0' : text[end + 2];
}

}  // namespace

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
