// Runs and monitors ssh commands.
#include "launch/frontends/remote_run.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "launch/system/event_loop.h"
#include "launch/system/network.h"
#include "launch/workers/guard.h"
#include "launch/workers/worker_environment.h"
#include "launch/workers/worker_group.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kSave{35000};    // the grace period of the agents plus a margin
constexpr milliseconds kOthers{10000};  // time in which the agents stop each other after a failure
constexpr milliseconds kRemoteLastWords{60000};

milliseconds left_until(const std::optional<Clock::time_point>& deadline) {
  return deadline
             ? std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*deadline - Clock::now()))
             : kForEver;
}

int code_of(const WorkerGroup& group, const std::vector<DeepspeedRequest::Command>& commands) {
  const std::vector<const Worker*> failures = group.failures();
  for (const Worker* worker : failures) {
    log_error(
        "the agent on {} exited with {}",
        commands[static_cast<size_t>(worker->rank)].host,
        worker->status->shell_code());
  }
  return !failures.empty()   ? failures.front()->status->shell_code()
         : group.preempted() ? kExitPreempted
                             : 0;
}

// Returns the read end of a pipe that contains the text. Adds the write end to `alive`.
Socket input_that_says(const std::string& text, std::vector<Socket>& alive) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(
        ErrorKind::kEnvironment,
        "cannot create a pipe",
        "raise the limit of open files: ulimit -n");
  }
  Socket read(ends[0]);
  alive.emplace_back(ends[1]);
  // The pipe has no reader yet, so it must be large enough for the text.
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(std::max<size_t>(text.size(), 65536)));
  if (::write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw Error(
        ErrorKind::kEnvironment,
        "the environment of the agents is too long for a pipe",
        "make .deepspeed_env shorter");
  }
  return read;
}

}  // namespace

int run_remotely(const std::vector<DeepspeedRequest::Command>& commands) {
  Guard guard({SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  Console output(guard.loop(), STDOUT_FILENO), error_output(guard.loop(), STDERR_FILENO);
  std::vector<Socket> inputs,
      alive;  // while these pipes are open, the agents continue to run
  Environment environment = current_environment();
  environment[Guard::kTagName] = guard.tag();
  std::vector<WorkerSpec> specs;
  for (size_t i = 0; i < commands.size(); ++i) {
    WorkerSpec spec;
    spec.rank = spec.local_rank = static_cast<int>(i);
    spec.process.argv = commands[i].argv;
    Environment own = environment;
    for (const auto& [name, value] : commands[i].environment) {
      own[name] = value;
    }
    spec.process.environment = flatten(own);
    inputs.push_back(input_that_says(commands[i].input, alive));
    spec.process.input = inputs.back().get();
    const std::string prefix = commands.size() > 1 ? commands[i].host + ": " : "";
    spec.output = {&output, true, prefix, nullptr, {}, nullptr};
    spec.error_output = {&error_output, true, prefix, nullptr, {}, nullptr};
    specs.push_back(std::move(spec));
  }
  WorkerGroup group(guard.loop(), std::move(specs));
  std::optional<Clock::time_point> deadline;
  int seen = 0;
  while (group.running() > 0 && !(deadline && Clock::now() >= *deadline)) {
    if (guard.signals_seen() > seen) {
      // The first signal requests a clean end. A second signal forces the end.
      deadline = seen == 0 ? Clock::now() + kSave : Clock::now();
      seen = guard.signals_seen();
      alive.clear();
    } else if (!deadline && !group.failures().empty()) {
      deadline = Clock::now() + kOthers;
    }
    group.wait(left_until(deadline));
  }
  const int code = code_of(group, commands);
  if (group.running() > 0) {
    group.stop(SIGTERM, milliseconds(1000));
  }
  guard.end_descendants(milliseconds(500));
  group.finish_output();
  output.flush(kRemoteLastWords);
  error_output.flush(kRemoteLastWords);
  return code == 0 && guard.signal() ? 128 + *guard.signal() : code;
}

}  // namespace lockstep::launch
