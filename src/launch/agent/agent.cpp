// Implements the agent's main loop, which runs one round of workers after another.
#include "launch/agent/agent.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/persistent_memory.h"
#include "launch/agent/coordinator_client.h"
#include "launch/agent/health_check.h"
#include "launch/agent/log_folder.h"
#include "launch/agent/rendezvous.h"
#include "launch/plan/devices.h"
#include "launch/plan/plan_parts.h"
#include "launch/plan/program.h"
#include "launch/plan/shell_words.h"
#include "launch/system/step_file.h"
#include "launch/workers/attempt.h"
#include "launch/workers/event_log.h"
#include "launch/workers/watchdog.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kAgentLastWords{60000};
constexpr milliseconds kSignalGrace{30000}, kFailureGrace{700};

// DeepSpeed's --save_pid: file from which tools read the launcher's pid.
class PidFile {
 public:
  explicit PidFile(bool wanted) {
    if (wanted) {
      path_ = fmt::format("/tmp/{}.deepspeed", ::getpid());
      write_file_atomically(path_, std::to_string(::getpid()), ErrorKind::kEnvironment);
    }
  }
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  ~PidFile() {
    std::error_code ignored;
    if (!path_.empty()) {
      std::filesystem::remove(path_, ignored);
    }
  }

 private:
  std::filesystem::path path_;
};

class Agent {
 public:
  explicit Agent(const LaunchPlan& plan)
      : plan_(plan),
        guard_(plan.signals),
        logs_(plan.log, plan.run_id),
        events_(plan.event_log, plan.run_id),
        output_(guard_.loop(), STDOUT_FILENO),
        error_output_(guard_.loop(), STDERR_FILENO) {
    if (!logs_.temporary().empty()) {
      guard_.remove_if_killed(logs_.temporary());
    }
    if (plan.watch_stdin) {
      watch_stdin();
    }
    if (plan.restarts.most > 0) {
      memory_.resize(static_cast<size_t>(plan.workers));
    }
  }

  int run();

 private:
  void watch_stdin();
  Environment common_environment();
  WorkerSpec worker(const Round& round, const Environment& common, int local_rank);
  void set_devices(Environment& environment, int local_rank) const;
  AttemptOptions attempt_options(Rendezvous& rendezvous) const;
  int finish(const Verdict& verdict);
  void tell(const Verdict& verdict);

  const LaunchPlan& plan_;
  Guard guard_;
  LogFolder logs_;
  EventLog events_;
  Console output_, error_output_;
  std::optional<Watchdog> watchdog_;
  Health health_;
  std::optional<HealthCheck> health_check_;
  std::vector<std::filesystem::path> step_files_;  // of the round
  std::vector<PersistentMemory> memory_;           // one per worker, if workers may be restarted
};

void Agent::watch_stdin() {
  struct stat info{};
  if (::fstat(STDIN_FILENO, &info) != 0 || !(S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode))) {
    return;
  }
  guard_.loop().watch(STDIN_FILENO, [this] {
    char bytes[256];
    if (::read(STDIN_FILENO, bytes, sizeof bytes) == 0) {
      guard_.loop().forget(STDIN_FILENO);
      guard_.take_signal(SIGTERM);
    }
  });
}

Environment Agent::common_environment() {
  Environment environment = current_environment();
  for (const auto& [name, value] : plan_.environment) {
    environment[name] = value;
  }
  environment[Guard::kTagName] = guard_.tag();
  environment.erase(kSecretVariable);  // only for the agents, not for the workers
  if (watchdog_) {
    environment["TORCHELASTIC_TIMER_FILE"] = watchdog_->path().string();
  }
  if (!plan_.log.redirects.any() && !plan_.log.tee.any()) {
    set_terminal_width(environment);
  }
  if (plan_.workers > 1 || quota_bounds_cpus() || environment.contains("OMP_NUM_THREADS")) {
    share_cores(environment, plan_.workers);
  }
  return environment;
}

void Agent::set_devices(Environment& environment, int local_rank) const {
  if (plan_.virtual_local_rank) {
    const std::vector<std::string> gpus = usable_gpus(environment);
    const size_t index = static_cast<size_t>(local_rank);
    environment["CUDA_VISIBLE_DEVICES"] =
        index < gpus.size() ? gpus[index] : std::to_string(local_rank);
    environment["LOCAL_RANK"] = "0";
  }
}

WorkerSpec Agent::worker(const Round& round, const Environment& common, int local_rank) {
  WorkerSpec spec;
  spec.local_rank = local_rank;
  spec.rank = plan_.identity ? plan_.identity->rank : round.first_rank + local_rank;
  LogFolder::Routes routes = logs_.routes(
      {round.number, spec.rank, local_rank, plan_.workers, plan_.role}, output_, error_output_);
  spec.output = std::move(routes.output);
  spec.error_output = std::move(routes.error_output);
  spec.error_file = std::move(routes.error_file);
  WorkerIdentity identity;
  identity.rank = identity.role_rank = spec.rank;
  identity.local_rank = local_rank;
  identity.group_rank = round.node;
  identity.group_world_size = round.nodes;
  identity.local_world_size = plan_.workers;
  identity.world_size = identity.role_world_size = round.world_size;
  identity.role = plan_.role;
  identity.master_address = round.master_address;
  identity.master_port = round.master_port;
  identity.restart_count = round.restarts;
  identity.max_restarts = plan_.restarts.most;
  identity.run_id = plan_.run_id;
  identity.round = round.number;
  identity.job = round.job.id;
  identity.first_world_size = round.job.first_world_size;
  identity.term = round.term;
  if (plan_.identity) {
    identity = *plan_.identity;
  }
  spec.local_rank = identity.local_rank;
  identity.error_file = spec.error_file.string();
  Environment environment = common;
  environment["LOCKSTEP_STARTED"] = std::to_string(round.job.started);
  if (plan_.plain) {
    environment["TORCHELASTIC_ERROR_FILE"] = identity.error_file;
  } else {
    set_identity(environment, identity);
  }
  if (plan_.deepspeed_environment) {
    environment["CROSS_RANK"] = std::to_string(round.node);
    environment["CROSS_SIZE"] = std::to_string(round.nodes);
    environment["LOCAL_SIZE"] = std::to_string(plan_.workers);
  }
  set_devices(environment, local_rank);
  spec.process.argv = plan_.argv;
  if (!plan_.local_rank_argument.empty()) {
    std::string argument = plan_.local_rank_argument;
    argument.replace(argument.find("{}"), 2, std::to_string(local_rank));
    spec.process.argv.insert(
        spec.process.argv.begin() + static_cast<std::ptrdiff_t>(plan_.argument_at), argument);
  }
  const size_t index = static_cast<size_t>(local_rank);
  if (index < plan_.cpus.size()) {
    spec.process.cpus = plan_.cpus[index];
  } else if (!plan_.numa_binding.empty()) {
    spec.process.cpus = cpus_near(plan_.numa_binding, usable_gpus(common), local_rank);
  }
  environment.erase(kStepFileVariable);  // set by an outer launcher that watches this one
  if (!identity.error_file.empty()) {
    spec.status_file = spec.error_file.parent_path() / "step";
    environment[kStepFileVariable] = spec.status_file.string();
    step_files_.push_back(spec.status_file);
  }
  environment.erase(kPersistentMemoryVariable);  // set by an outer launcher, too
  if (index < memory_.size() && memory_[index].descriptor() >= 0) {
    spec.process.handed_on = memory_[index].descriptor();
    environment[kPersistentMemoryVariable] = std::to_string(spec.process.handed_on);
  }
  spec.process.environment = flatten(environment);
  spec.process.inherit_stdin = local_rank == 0 && !plan_.watch_stdin;
  return spec;
}

AttemptOptions Agent::attempt_options(Rendezvous& rendezvous) const {
  AttemptOptions options;
  options.signal_grace = plan_.shutdown_timeout.value_or(kSignalGrace);
  options.failure_grace = plan_.shutdown_timeout.value_or(kFailureGrace);
  options.uninterruptible = plan_.uninterruptible;
  options.interruption = [&rendezvous] { return rendezvous.interruption(); };
  options.ending = [&rendezvous](const AttemptResult& result) { rendezvous.ending(result); };
  return options;
}

void Agent::tell(const Verdict& verdict) {
  std::string text;
  if (!verdict.failures.empty()) {
    text = report(plan_.name, verdict.failures, LineTail::kLines, verdict.other_failures);
    if (verdict.next == Verdict::Next::kEnd && !verdict.reason.empty()) {
      text += verdict.reason + "\n";
    }
  } else if (!verdict.reason.empty()) {
    text = fmt::format(
        "{0}\n{1} FAILED\n  {2}\n{0}\n", std::string(60, '='), plan_.name, verdict.reason);
  }
  output_.flush(kAgentLastWords);
  error_output_.write(text);
  error_output_.flush(kAgentLastWords);
}

int Agent::finish(const Verdict& verdict) {
  tell(verdict);
  if (!verdict.failures.empty()) {
    const Failure& root = verdict.failures[root_cause(verdict.failures)];
    const char* parents = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (!root.error_file.empty()) {
      logs_.keep();
      if (parents != nullptr) {
        copy_error_file(root.error_file, parents, root.status.signed_code());
      }
    }
  }
  events_.write("end", {{"exit_code", verdict.exit_code}, {"reason", verdict.reason}});
  return verdict.exit_code == 0 || plan_.propagate_exit_code ? verdict.exit_code : 1;
}

int Agent::run() {
  const PidFile pid_file(plan_.pid_file);
  for (const std::string& note : plan_.notes) {
    log_info("{}", note);
  }
  const auto program = static_cast<std::ptrdiff_t>(plan_.argument_at) - 1;
  const std::vector<std::string> own =
      program < 0 ? std::vector<std::string>()
                  : own_words_for({plan_.argv.begin() + program, plan_.argv.end()});
  if (!own.empty()) {
    std::vector<std::string> quoted(own.size());
    std::ranges::transform(own, quoted.begin(), shell_quote);
    log_info(
        "Lockstep can run this without Python: use \"{}\" instead of {} and its arguments "
        "(docs/unlearning.md)",
        fmt::join(quoted, " "),
        plan_.name);
  }
  if (plan_.watchdog) {
    watchdog_.emplace(guard_.loop(), *plan_.watchdog);
  }
  if (plan_.health_check_port) {
    const std::string& named = plan_.rendezvous.local_address;
    health_check_.emplace(
        guard_.loop(), named.empty() ? "127.0.0.1" : named, *plan_.health_check_port, health_);
  }
  const std::unique_ptr<Rendezvous> rendezvous =
      plan_.rendezvous.kind == RendezvousPoint::Kind::kLocal
          ? make_single_node_rendezvous(guard_, plan_)
          : make_coordinator_client(guard_, plan_);
  const Environment common = common_environment();
  while (true) {
    const std::optional<Round> round = rendezvous->next_round();
    if (!round) {
      return plan_.propagate_exit_code ? 128 + guard_.signal().value_or(SIGTERM) : 1;
    }
    std::vector<WorkerSpec> specs;
    step_files_.clear();
    for (int local_rank = 0; local_rank < plan_.workers; ++local_rank) {
      specs.push_back(worker(*round, common, local_rank));
    }
    events_.write(
        "start",
        {{"round", round->number},
         {"restarts", round->restarts},
         {"node", round->node},
         {"nodes", round->nodes},
         {"world_size", round->world_size}});
    health_.workers_run(step_files_);
    const AttemptResult result =
        run_attempt(guard_, std::move(specs), attempt_options(*rendezvous));
    health_.workers_ended();
    for (const Failure& failure : result.failures) {
      events_.write("failure", nlohmann::json::parse(to_json(failure)));
    }
    const Verdict verdict = rendezvous->conclude(result);
    if (verdict.next == Verdict::Next::kEnd) {
      return finish(verdict);
    }
    tell(verdict);
    log_info(
        "restarting the workers (restart {} {})",
        round->restarts + (verdict.failures.empty() && verdict.reason.empty() ? 0 : 1),
        plan_.restarts.text());
  }
}

}  // namespace

int run_agent(const LaunchPlan& plan) {
  set_log_level(plan.log_level);
  return Agent(plan).run();
}

}  // namespace lockstep::launch
