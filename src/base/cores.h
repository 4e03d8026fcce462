// Number of processors available to this process. Use this instead of
// std::thread::hardware_concurrency(). In a container with a CPU-time quota (CFS), all CPUs of the
// machine are visible, but that many threads would be throttled for most of each period.
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

/// Returns the number of CPUs in the process's affinity mask, limited to the cgroup quota (rounded
/// up). At least 1.
int usable_cpus();

/// Variant for physical cores: hyper-threads of a core count once.
int usable_cores();

/// Returns true if the quota is smaller than the affinity mask. OpenMP considers only the mask.
bool quota_bounds_cpus();

/// Returns the CPU quota of a process: the smallest quota of its cgroup and the ancestors; 0: no
/// quota. `root` is /sys/fs/cgroup (version 2 or 1), and `own` is the content of /proc/self/cgroup.
double cpu_quota(const std::filesystem::path& root, std::string_view own);

}  // namespace lockstep
