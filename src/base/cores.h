// Number of processors available to this process. With a CPU-time quota of a container (CFS), all
// CPUs of the machine are visible, and that many threads would be stopped for most of each period.
// Use this instead of std::thread::hardware_concurrency().
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

/// CPUs that the scheduler may run this process on, and no more than its cgroup's quota, rounded
/// up. At least 1.
int usable_cpus();

/// The same of physical cores: the threads of one core count once.
int usable_cores();

/// Whether a quota grants less than the CPUs that the scheduler may use, which OpenMP alone counts.
bool quota_bounds_cpus();

/// CPUs' worth of time that the cgroups of a process grant, the least of those above it; 0: no
/// bound. `root` is /sys/fs/cgroup, of version 2 or 1, and `own` the text of /proc/self/cgroup.
double cpu_quota(const std::filesystem::path& root, std::string_view own);

}  // namespace lockstep
