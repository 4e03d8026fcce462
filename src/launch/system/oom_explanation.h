// What the kernel says about memory: whether the cgroup of this process killed something, its limit
// and its peak.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Counters of the memory cgroup (version 2 or 1) that this process is in.
struct MemoryCounters {
  int64_t kills = 0;             // processes killed for memory so far
  std::optional<int64_t> limit;  // bytes; nothing where there is none
  std::optional<int64_t> peak;   // bytes
  std::string folder;            // of the cgroup
};

/// Reads them; nothing where no memory cgroup can be read.
std::optional<MemoryCounters> read_memory_counters();

/// A sentence for the report of a worker that SIGKILL ended: the kernel killed it for memory, or it
/// did not.
std::string oom_explanation(
    const std::optional<MemoryCounters>& before, const std::optional<MemoryCounters>& after);

}  // namespace lockstep::launch
