// Sets the environment variables of workers.
#include "launch/workers/worker_environment.h"

#include <algorithm>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/format.h"
#include "base/log.h"

namespace lockstep::launch {

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
  set("LOCKSTEP_TERM", identity.term);
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

bool has_too_many_threads(const Environment& environment, int workers) {
  const auto set = environment.find("OMP_NUM_THREADS");
  const int threads = set == environment.end() ? 1 : std::atoi(set->second.c_str());
  return threads > 1 && int64_t{threads} * workers > usable_cpus();
}

void share_cores(Environment& environment, int workers) {
  if (!environment.contains("OMP_NUM_THREADS")) {
    const int threads = std::max(1, usable_cores() / std::max(1, workers));
    environment["OMP_NUM_THREADS"] = std::to_string(threads);
    if (workers > 1 || quota_bounds_cpus()) {
      log_info(
          "OMP_NUM_THREADS={} for each of {} workers ({} cores); set the variable to override it",
          threads,
          workers,
          usable_cores());
    }
  }
  if (has_too_many_threads(environment, workers) &&
      environment.emplace("OMP_WAIT_POLICY", "passive").second) {
    log_warning(
        "OMP_NUM_THREADS={} for each of {} workers exceeds the {} processors: threads take turns, "
        "which is slower than {} threads each",
        environment["OMP_NUM_THREADS"],
        workers,
        usable_cpus(),
        std::max(1, usable_cores() / workers));
  }
}

}  // namespace lockstep::launch
