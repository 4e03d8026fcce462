// Supervises workers on a single machine.
#include "launch/workers/supervisor.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <unistd.h>

#include "base/error.h"
#include "base/rank_status.h"
#include "base/temporary_folder.h"
#include "launch/system/job_store.h"
#include "launch/workers/attempt.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kLastWords{60000};

// Folder of the workers' error files. The destructor removes it unless it contains error files.
class ErrorFolder {
 public:
  ErrorFolder() {
    std::string pattern = (temporary_folder() / "lockstep-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format("cannot create a folder in {}: {}", pattern, std::strerror(errno)),
          "set TMPDIR to a writable folder");
    }
    path_ = pattern;
  }
  ErrorFolder(const ErrorFolder&) = delete;
  ErrorFolder& operator=(const ErrorFolder&) = delete;
  ~ErrorFolder() {
    std::error_code ignored;
    if (!keep_) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  std::filesystem::path file(int local_rank) const {
    const auto folder = path_ / std::to_string(local_rank);
    std::filesystem::create_directories(folder);
    return folder / "error.json";
  }
  void keep() { keep_ = true; }

 private:
  std::filesystem::path path_;
  bool keep_ = false;
};

}  // namespace

int supervise(const SupervisorOptions& options) {
  Guard guard({SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  const JobStore store;
  ErrorFolder errors;
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
  const AttemptResult result = run_attempt(guard, std::move(specs), attempt);
  output.flush(kLastWords);
  error_output.flush(kLastWords);
  if (!result.failures.empty()) {
    errors.keep();
    const std::string name = options.name.empty()
                                 ? std::filesystem::path(options.argv.at(0)).filename().string()
                                 : options.name;
    const std::string text = report(name, result.failures, options.report_lines);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  return result.exit_code;
}

}  // namespace lockstep::launch
