// Runs the workers of one attempt and finds the root cause of failures.
#include "launch/workers/attempt.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "launch/system/event_loop.h"
#include "launch/system/step_file.h"
#include "launch/workers/hang_watch.h"
#include "launch/workers/uninterruptible.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBetweenLooks{200};     // interval of the checks for hanging workers
constexpr milliseconds kOthersFailingToo{10};  // to collect simultaneous failures
constexpr milliseconds kCauseOfLostPeer{
    500};  // other workers may notice the loss of a peer before the launcher notices its end
constexpr milliseconds kFromErrorToEnd{2000};  // a Python worker takes time to exit
constexpr milliseconds kOrphansMayFinish{1000};
constexpr milliseconds kOrphansMustFinish{200};

milliseconds left_until(Clock::time_point deadline) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

bool only_lost_peers(const std::vector<const Worker*>& failures) {
  return std::all_of(failures.begin(), failures.end(), [](const Worker* worker) {
    return lost_a_peer(*worker->status);
  });
}

// Returns the failures, except those of workers that only lost a preempted peer.
std::vector<const Worker*> failures_that_count(const WorkerGroup& group) {
  std::vector<const Worker*> failures = group.failures();
  if (group.preempted() && only_lost_peers(failures)) {
    failures.clear();
  }
  return failures;
}

Interruption interruption_of(const AttemptOptions& options) {
  return options.interruption ? options.interruption() : Interruption::kNone;
}

// Kills a worker that has been stuck in the kernel for too long. Its end is then a failure. Returns
// true if a worker was killed.
bool kill_one_that_hangs(WorkerGroup& group, UninterruptibleWatch& hanging) {
  const Worker* worker = hanging.look(group, Clock::now());
  if (worker == nullptr) {
    return false;
  }
  log_error(
      "killed rank {} (PID {}): in uninterruptible sleep for longer than "
      "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT; the job is not restarted",
      worker->rank,
      worker->pid);
  ::kill(-worker->pid, SIGKILL);
  return true;
}

// Kills a rank that has hung for longer than its configuration allows. Its end is then a failure.
void end_one_that_stands(HangWatch& hangs) {
  if (const Worker* worker = hangs.look()) {
    log_error(
        "killed rank {} (PID {}): it hung for longer than training.hang_timeout",
        worker->rank,
        worker->pid);
    ::kill(-worker->pid, SIGKILL);
  }
}

// Waits for the end of the attempt and returns it. `stuck` is set if a worker was stuck in the
// kernel.
AttemptEnd watch(
    Guard& guard,
    WorkerGroup& group,
    HangWatch& hangs,
    const AttemptOptions& options,
    bool& stuck) {
  std::optional<Clock::time_point> deadline;
  UninterruptibleWatch hanging(options.uninterruptible);
  const bool at_sleepers = options.uninterruptible.count() > 0, at_hangs = hangs.looks();
  while (true) {
    if (at_sleepers && !stuck) {
      stuck = kill_one_that_hangs(group, hanging);
    }
    if (at_hangs) {
      end_one_that_stands(hangs);
    }
    if (guard.signal()) {
      return AttemptEnd::kSignalled;
    }
    if (!failures_that_count(group).empty()) {
      return AttemptEnd::kFailed;
    }
    if (group.running() == 0) {
      return group.preempted() ? AttemptEnd::kPreempted : AttemptEnd::kSucceeded;
    }
    if (interruption_of(options) != Interruption::kNone) {
      return AttemptEnd::kInterrupted;
    }
    if (group.preempted() && !deadline) {
      deadline = Clock::now() + options.signal_grace;
    }
    if (deadline && Clock::now() >= *deadline) {
      return AttemptEnd::kPreempted;
    }
    const milliseconds pause = at_sleepers || at_hangs ? kBetweenLooks : kForEver;
    group.wait(deadline ? left_until(*deadline) : pause);
  }
}

// Returns true if a worker has written its error but not exited yet. Its peers may have exited
// first.
bool is_failing(const WorkerGroup& group) {
  return std::any_of(group.workers().begin(), group.workers().end(), [](const auto& worker) {
    return !worker->status && read_error_file(worker->error_file);
  });
}

// Waits briefly for other failures that have the same cause.
void gather(WorkerGroup& group) {
  const milliseconds pause =
      only_lost_peers(group.failures()) ? kCauseOfLostPeer : kOthersFailingToo;
  const auto deadline = Clock::now() + pause;
  while (group.running() > 0 && Clock::now() < deadline) {
    group.wait(left_until(deadline));
    if (pause == kCauseOfLostPeer && !only_lost_peers(group.failures())) {
      return;
    }
  }
  const auto last = Clock::now() + kFromErrorToEnd;
  while (is_failing(group) && Clock::now() < last) {
    group.wait(left_until(last));
  }
}

void end_workers(
    Guard& guard, WorkerGroup& group, const AttemptOptions& options, AttemptResult& result) {
  const bool makes_room = result.end == AttemptEnd::kInterrupted &&
                          interruption_of(options) == Interruption::kMembership;
  const bool gently =
      makes_room || result.end == AttemptEnd::kSignalled || result.end == AttemptEnd::kPreempted;
  const int seen = guard.signals_seen();
  // Stop faster after a second signal, or if another node fails while workers exit for new nodes.
  const auto hurry = [&] {
    return guard.signals_seen() > seen ||
           (makes_room && interruption_of(options) == Interruption::kFailure);
  };
  std::vector<int> stubborn;
  if (group.running() > 0) {
    const int first = result.end == AttemptEnd::kSignalled ? result.signal : SIGTERM;
    const milliseconds grace = gently ? options.signal_grace : options.failure_grace;
    group.stop(first, grace, hurry);
    for (const auto& worker : group.workers()) {
      if (worker->asked_to_end && worker->status && worker->status->signal == SIGKILL) {
        stubborn.push_back(worker->rank);
      }
    }
    if (!stubborn.empty() && first != SIGKILL) {
      log_warning(
          "killed ranks {}, which did not end within {:.1f} s of {}",
          fmt::join(stubborn, ", "),
          hurry() ? 0.0 : static_cast<double>(grace.count()) / 1000,
          signal_name(first));
    }
  }
  for (const auto& worker : group.workers()) {
    if (!worker->status) {
      result.stuck = true;
      log_error(
          "rank {} (PID {}) hangs in the kernel and cannot be killed: a driver or a file system "
          "does not respond (see `cat /proc/{}/stack`)",
          worker->rank,
          worker->pid,
          worker->pid);
    }
  }
  guard.end_descendants(
      result.end == AttemptEnd::kSucceeded ? kOrphansMayFinish : kOrphansMustFinish);
  group.finish_output();
}

// Returns the workers that failed after a signal. Workers that could not save exit with one of
// Lockstep's error codes (2 to 7). All others were ended by the signal.
std::vector<const Worker*> failed_while_stopping(const WorkerGroup& group) {
  std::vector<const Worker*> result;
  for (const auto& worker : group.workers()) {
    const int code = worker->status ? worker->status->shell_code() : 0;
    if (code >= 2 && code <= kPeerLostCode) {
      result.push_back(worker.get());
    }
  }
  std::sort(result.begin(), result.end(), [](const Worker* a, const Worker* b) {
    return a->order < b->order;
  });
  return result;
}

// Returns the worker for which other workers timed out. They may name it; otherwise it is found
// from the rank status. Its stacks are read while it still hangs.
const Worker* find_hanging(
    WorkerGroup& group, HangWatch& hangs, const std::vector<const Worker*>& failed) {
  for (const Worker* worker : failed) {
    const auto error = read_error_file(worker->error_file);
    if (!error || !lost_a_peer(*worker->status) || !gave_up_waiting(error->message)) {
      continue;
    }
    const Worker* const found = hangs.find_after_timeout(
        unanswering_rank(error->message), [&](milliseconds pause) { group.wait(pause); });
    if (found != nullptr) {
      return found;
    }
  }
  return nullptr;
}

std::vector<Failure> describe_all(
    const std::vector<const Worker*>& failed,
    const Worker* hanging,
    const HangWatch& hangs,
    const std::optional<MemoryCounters>& before,
    const std::optional<MemoryCounters>& after) {
  std::vector<Failure> failures;
  for (const Worker* worker : failed) {
    failures.push_back(describe(*worker, before, after));
    if (const std::string found = hangs.found(worker->rank);
        !found.empty() && worker->status->signal == SIGKILL) {
      failures.back().callstack = failures.back().message = found;
    }
  }
  if (hanging != nullptr) {
    failures.push_back(
        describe_hanging(*hanging, failures[root_cause(failures)], hangs.found(hanging->rank)));
  }
  return failures;
}

std::optional<int64_t> last_step(const WorkerGroup& group) {
  std::optional<int64_t> last;
  std::error_code ignored;
  for (const auto& worker : group.workers()) {
    if (!worker->status_file.empty() && std::filesystem::exists(worker->status_file, ignored)) {
      const std::optional<StepMark> mark = read_step(worker->status_file);
      last = std::max(last.value_or(-1), mark ? mark->step : -1);
    }
  }
  return last;
}

int exit_code_of(const WorkerGroup& group, const AttemptResult& result) {
  if (!result.failures.empty()) {
    return result.failures[root_cause(result.failures)].status.shell_code();
  }
  switch (result.end) {
    case AttemptEnd::kSucceeded:
      return 0;
    case AttemptEnd::kPreempted:
      return kExitPreempted;
    case AttemptEnd::kFailed:
    case AttemptEnd::kInterrupted:
      return 1;
    case AttemptEnd::kSignalled:
      break;
  }
  if (group.preempted()) {
    return kExitPreempted;
  }
  const bool all_succeeded =
      std::all_of(group.workers().begin(), group.workers().end(), [](const auto& worker) {
        return worker->status && worker->status->succeeded();
      });
  return all_succeeded ? 0 : 128 + result.signal;
}

}  // namespace

AttemptResult run_attempt(
    Guard& guard, std::vector<WorkerSpec> specs, const AttemptOptions& options) {
  const std::optional<MemoryCounters> before = read_memory_counters();
  WorkerGroup group(guard.loop(), std::move(specs));
  guard.set_pass_on([&](int signal) { group.pass_on(signal); });
  AttemptResult result;
  HangWatch hangs(group);
  result.end = watch(guard, group, hangs, options, result.stuck);
  result.signal = guard.signal().value_or(0);
  if (result.end == AttemptEnd::kFailed) {
    gather(group);
  }
  std::vector<const Worker*> failed = failures_that_count(group);
  const std::optional<MemoryCounters> after = read_memory_counters();
  const Worker* const hanging = find_hanging(group, hangs, failed);
  result.failures = describe_all(failed, hanging, hangs, before, after);
  result.exit_code = exit_code_of(group, result);
  if (options.ending) {
    options.ending(result);
  }
  end_workers(guard, group, options, result);
  if (result.end == AttemptEnd::kSignalled && failed.empty()) {
    failed = failed_while_stopping(group);
  }
  // Describe the failures again, because the rest of the workers' output has been read since then.
  result.failures = describe_all(failed, hanging, hangs, before, after);
  result.exit_code = exit_code_of(group, result);
  result.step = last_step(group);
  guard.set_pass_on(nullptr);
  return result;
}

}  // namespace lockstep::launch
