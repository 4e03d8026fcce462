// Counts the processors available to this process.
#include "base/cores.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include <sched.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Returns the first word of the file that lists a CPU's sibling threads. It is the same for all
// threads of a core.
std::string siblings_of(int cpu) {
  std::ifstream file(
      "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  std::string text;
  return file >> text ? text : std::to_string(cpu);
}

// Returns the CPU quota in a cgroup folder, or 0 if it is not set.
double quota_of(const fs::path& folder) {
  std::ifstream version2(folder / "cpu.max");
  double quota = 0, period = 0;
  if (version2 >> quota >> period && period > 0) {  // "max 100000" means no quota
    return quota / period;
  }
  std::ifstream quota1(folder / "cpu.cfs_quota_us"), period1(folder / "cpu.cfs_period_us");
  if (quota1 >> quota && period1 >> period && quota > 0 && period > 0) {  // -1: no quota
    return quota / period;
  }
  return 0;
}

// Returns true if a list such as "cpu,cpuacct" contains "cpu".
bool has_cpu(std::string_view controllers) {
  std::istringstream words{std::string(controllers)};
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "cpu") {
      return true;
    }
  }
  return false;
}

// Returns the folders that may have quotas: the process's cgroup and its ancestors. In a container,
// the path may be that of the host, and the root is then the container's own cgroup.
std::set<fs::path> folders_of(const fs::path& root, std::string_view own) {
  std::set<fs::path> folders;
  const auto add = [&](const fs::path& top, const fs::path& path) {
    fs::path at = top;
    folders.insert(at);
    for (const fs::path& part : path.relative_path()) {
      folders.insert(at /= part);
    }
  };
  add(root, {});
  add(root / "cpu", {});
  std::istringstream lines{std::string(own)};
  for (std::string line; std::getline(lines, line);) {  // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      add(root, path);
    } else if (has_cpu(controllers)) {
      add(root / "cpu", path);
      add(root / controllers, path);
    }
  }
  return folders;
}

double own_quota() {
  std::ifstream file("/proc/self/cgroup");
  const std::string own{std::istreambuf_iterator<char>(file), {}};
  return cpu_quota("/sys/fs/cgroup", own);
}

std::optional<cpu_set_t> allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? std::optional(allowed)
                                                               : std::nullopt;
}

int scheduled_cpus() {
  const auto allowed = allowed_cpus();
  return std::max(
      1, allowed ? CPU_COUNT(&*allowed) : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

int within_quota(int count) {
  const double quota = own_quota();
  return quota > 0 ? std::clamp(static_cast<int>(std::ceil(quota)), 1, count) : count;
}

}  // namespace

double cpu_quota(const std::filesystem::path& root, std::string_view own) {
  double least = 0;
  for (const fs::path& folder : folders_of(root, own)) {
    const double quota = quota_of(folder);
    least = quota > 0 && (least == 0 || quota < least) ? quota : least;
  }
  return least;
}

int usable_cpus() {
  return within_quota(scheduled_cpus());
}

int usable_cores() {
  const auto allowed = allowed_cpus();
  if (!allowed) {
    return usable_cpus();
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &*allowed)) {
      cores.insert(siblings_of(cpu));
    }
  }
  return within_quota(std::max<int>(1, static_cast<int>(cores.size())));
}

bool quota_bounds_cpus() {
  return usable_cpus() < scheduled_cpus();
}

}  // namespace lockstep
