// Supervises workers on a single machine.
#include "launch/workers/supervisor.h"

#include <csignal>
#include <filesystem>

#include <unistd.h>

#include "base/rank_status.h"
#include "launch/system/job_store.h"
#include "launch/workers/attempt.h"
#include "launch/workers/error_folder.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kLastWords{60000};

}  // namespace

int supervise(const SupervisorOptions& options) {
  Guard guard({SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  const JobStore store;
  const ErrorFolder errors;
  guard.remove_if_killed(errors.path());
  Console output(guard.loop(), STDOUT_FILENO), error_output(guard.loop(), STDERR_FILENO);
  Environment common = current_environment();
  for (const auto& [name, value] : options.environment) {
    common[name] = value;
  }
  common[Guard::kTagName] = guard.tag();
  share_cores(common, options.workers);
  set_terminal_width(common);

  std::vector<WorkerSpec> specs;
  for (int rank = 0; rank < options.workers; ++rank) {
    WorkerSpec spec;
    spec.rank = spec.local_rank = rank;
    spec.error_file = errors.file(rank);
    spec.process.argv = options.argv;
    spec.process.body = options.body;
    spec.process.inherit_stdin = rank == 0;
    WorkerIdentity identity;
    identity.rank = identity.local_rank = identity.role_rank = rank;
    identity.world_size = identity.local_world_size = identity.role_world_size = options.workers;
    identity.master_port = store.port();
    identity.error_file = spec.error_file.string();
    Environment environment = common;
    set_identity(environment, identity);
    spec.status_file = spec.error_file.parent_path() / "step";
    environment[kStatusFileVariable] = spec.status_file.string();
    spec.process.environment = flatten(environment);
    spec.output.console = &output;
    spec.output.whole_lines = rank != 0;
    spec.error_output.console = &error_output;
    spec.error_output.whole_lines = options.workers > 1;
    specs.push_back(std::move(spec));
  }
  AttemptOptions attempt;
  attempt.signal_grace = options.signal_grace;
  attempt.failure_grace = options.failure_grace;
  AttemptResult result = run_attempt(guard, std::move(specs), attempt);
  output.flush(kLastWords);
  error_output.flush(kLastWords);
  if (!result.failures.empty()) {
    for (Failure& failure : result.failures) {
      failure.error_file.clear();  // it is removed with its folder; the report has its content
    }
    const std::string name = options.name.empty()
                                 ? std::filesystem::path(options.argv.at(0)).filename().string()
                                 : options.name;
    const std::string text = report(name, result.failures, options.report_lines);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  return result.exit_code;
}

}  // namespace lockstep::launch
