// Explanation of SIGKILL by the kernel's memory counters: kills by this process's cgroup, its limit
// and its peak.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Counters of the memory cgroup (version 2 or 1) that this process is in.
struct MemoryCounters {
  int64_t kills = 0;             // processes killed for memory so far
  std::optional<int64_t> limit;  // bytes; nullopt: no limit
  std::optional<int64_t> peak;   // bytes
  std::string folder;            // of the cgroup
};

/// Reads the counters; nullopt if no memory cgroup is readable.
std::optional<MemoryCounters> read_memory_counters();

/// Returns a sentence for the report of a worker that was ended by SIGKILL: whether the kernel
/// killed it for memory.
std::string oom_explanation(
    const std::optional<MemoryCounters>& before, const std::optional<MemoryCounters>& after);

}  // namespace lockstep::launch
