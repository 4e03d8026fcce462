// Number of processors available to this process. With a CPU-time quota (CFS) of a container, all
// CPUs of the machine are visible, but that many threads would be throttled for most of each
// period. Use this instead of std::thread::hardware_concurrency().
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

/// Returns the number of CPUs in the process's affinity mask, limited to the cgroup quota rounded
/// up. At least 1.
int usable_cpus();

/// The same for physical cores: hyper-threads of a core count once.
int usable_cores();

/// Returns true if the quota is smaller than the affinity mask, which is all that OpenMP considers.
bool quota_bounds_cpus();

/// Returns the CPU quota of a process: the smallest of its cgroup and the ancestors; 0: no quota.
/// `root` is /sys/fs/cgroup (version 2 or 1), and `own` the text of /proc/self/cgroup.
double cpu_quota(const std::filesystem::path& root, std::string_view own);

}  // namespace lockstep
