#include "launch/workers/worker_environment.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/format.h"

namespace lockstep::launch {
namespace {

// The first word of the file, which names a core's sibling threads: equal for the threads of one
// core.
std::string siblings_of(int cpu) {
  std::ifstream file(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string text;
  if (!(file >> text)) {
    text = std::to_string(cpu);
  }
  return text;
}

// CPUs' worth of time that the cgroup grants; 0 where it sets no bound.
double cpu_quota() {
  std::ifstream version2("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (version2 >> quota >> period && period > 0) {
    return quota / period;
  }
  std::ifstream quota1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
      period1("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota1 >> quota && period1 >> period && quota > 0 && period > 0) {
    return quota / period;
  }
  return 0;
}

}  // namespace

Environment current_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      result[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return result;
}

std::vector<std::string> flatten(const Environment& environment) {
  std::vector<std::string> result;
  result.reserve(environment.size());
  for (const auto& [name, value] : environment) {
    result.push_back(name + "=" + value);
  }
  return result;
}

void set_identity(Environment& environment, const WorkerIdentity& identity) {
  const auto set = [&](const char* name, const auto& value) {
    environment[name] = fmt::format("{}", value);
  };
  set("RANK", identity.rank);
  set("LOCAL_RANK", identity.local_rank);
  set("GROUP_RANK", identity.group_rank);
  set("ROLE_RANK", identity.role_rank);
  set("ROLE_NAME", identity.role);
  set("WORLD_SIZE", identity.world_size);
  set("LOCAL_WORLD_SIZE", identity.local_world_size);
  set("GROUP_WORLD_SIZE", identity.group_world_size);
  set("ROLE_WORLD_SIZE", identity.role_world_size);
  set("MASTER_ADDR", identity.master_address);
  set("MASTER_PORT", identity.master_port);
  set("TORCHELASTIC_RESTART_COUNT", identity.restart_count);
  set("TORCHELASTIC_MAX_RESTARTS", identity.max_restarts);
  set("TORCHELASTIC_RUN_ID", identity.run_id);
  set("TORCHELASTIC_USE_AGENT_STORE", identity.agent_store ? "True" : "False");
  set("LOCKSTEP_ROUND", identity.round);
  environment.erase("LOCKSTEP_JOB");
  environment.erase("LOCKSTEP_FIRST_WORLD_SIZE");
  if (!identity.job.empty()) {
    set("LOCKSTEP_JOB", identity.job);
  }
  if (identity.first_world_size > 0) {
    set("LOCKSTEP_FIRST_WORLD_SIZE", identity.first_world_size);
  }
  environment.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  environment.erase("TORCHELASTIC_ERROR_FILE");
  if (!identity.error_file.empty()) {
    set("TORCHELASTIC_ERROR_FILE", identity.error_file);
  }
}

void set_terminal_width(Environment& environment) {
  environment.erase("LOCKSTEP_TERMINAL_WIDTH");
  const auto type = environment.find("TERM");
  const bool dumb = type != environment.end() && type->second == "dumb";
  winsize size{};
  if (!dumb && ::isatty(STDERR_FILENO) != 0 && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) {
    environment["LOCKSTEP_TERMINAL_WIDTH"] = std::to_string(size.ws_col > 0 ? size.ws_col : 80);
  }
}

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) {
      cores.insert(siblings_of(cpu));
    }
  }
  int count = std::max<int>(1, static_cast<int>(cores.size()));
  const double quota = cpu_quota();
  if (quota > 0) {
    count = std::clamp(static_cast<int>(std::ceil(quota)), 1, count);
  }
  return count;
}

int threads_for(int workers) {
  return std::max(1, usable_cores() / std::max(1, workers));
}

}  // namespace lockstep::launch
