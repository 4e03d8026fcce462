// Explains SIGKILL by the kernel's memory counters: the number of kills in this process's cgroup,
// its memory limit and its peak.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Counters of this process's memory cgroup (version 2 or 1).
struct MemoryCounters {
  int64_t kills = 0;             // number of processes killed so far because memory ran out
  std::optional<int64_t> limit;  // bytes; nullopt: no limit
  std::optional<int64_t> peak;   // bytes
  std::string folder;            // folder of the cgroup
};

/// Reads the counters; nullopt if no memory cgroup is readable.
std::optional<MemoryCounters> read_memory_counters();

/// Returns a sentence for the report of a worker that SIGKILL ended. It states whether the kernel
/// killed the worker because memory ran out.
std::string oom_explanation(
    const std::optional<MemoryCounters>& before, const std::optional<MemoryCounters>& after);

}  // namespace lockstep::launch
