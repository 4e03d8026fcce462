// Starts, watches and stops a group of workers.
#include "launch/workers/worker_group.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kPartialPause{100};
constexpr milliseconds kStuck{5000};

milliseconds until(Clock::time_point deadline) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

}  // namespace

WorkerGroup::WorkerGroup(EventLoop& loop, std::vector<WorkerSpec> specs) : loop_(loop) {
  processes_.reserve(specs.size());
  try {
    for (WorkerSpec& spec : specs) {
      start(std::move(spec));
    }
  } catch (...) {
    stop(SIGKILL, milliseconds(0));
    pumps_.clear();
    throw;
  }
}

WorkerGroup::~WorkerGroup() {
  if (running_ > 0) {
    stop(SIGKILL, milliseconds(0));
  }
  for (const Process& process : processes_) {
    loop_.forget(process.pid_descriptor());
  }
}

void WorkerGroup::start(WorkerSpec spec) {
  processes_.push_back(Process::start(spec.process));
  const Process& process = processes_.back();
  auto worker = std::make_unique<Worker>();
  worker->rank = spec.rank;
  worker->local_rank = spec.local_rank;
  worker->pid = process.pid();
  worker->error_file = std::move(spec.error_file);
  worker->status_file = std::move(spec.status_file);
  pumps_.push_back(
      std::make_unique<OutputPump>(loop_, process.output(), std::move(spec.output), worker->tail));
  pumps_.push_back(std::make_unique<OutputPump>(
      loop_, process.error_output(), std::move(spec.error_output), worker->tail));
  workers_.push_back(std::move(worker));
  ++running_;
  const size_t index = workers_.size() - 1;
  loop_.watch(process.pid_descriptor(), [this, index] { on_exit(index); });
}

void WorkerGroup::on_exit(size_t index) {
  Worker& worker = *workers_[index];
  const std::optional<ExitStatus> status = processes_[index].status();
  if (!status || worker.status) {
    return;
  }
  loop_.forget(processes_[index].pid_descriptor());
  worker.status = status;
  worker.ended = std::chrono::system_clock::now();
  worker.order = ended_++;
  worker.asked_to_end = asked_;
  --running_;
}

std::vector<const Worker*> WorkerGroup::failures() const {
  std::vector<const Worker*> result;
  for (const auto& worker : workers_) {
    if (worker->status && !worker->asked_to_end && !worker->status->succeeded() &&
        worker->status->shell_code() != kExitPreempted) {
      result.push_back(worker.get());
    }
  }
  std::sort(result.begin(), result.end(), [](const Worker* a, const Worker* b) {
    return a->order < b->order;
  });
  return result;
}

bool WorkerGroup::preempted() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) {
    return worker->status && worker->status->shell_code() == kExitPreempted;
  });
}

void WorkerGroup::wait(milliseconds timeout) {
  const bool partial = std::any_of(
      pumps_.begin(), pumps_.end(), [](const auto& pump) { return pump->has_partial(); });
  if (partial && (timeout.count() < 0 || timeout > kPartialPause)) {
    timeout = kPartialPause;
  }
  loop_.wait(timeout);
  for (const auto& pump : pumps_) {
    pump->show_partial(/*all=*/false);
  }
}

void WorkerGroup::signal(int signal) {
  asked_ = true;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i]->status) {
      processes_[i].signal_group(signal);
    }
  }
}

void WorkerGroup::pass_on(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->status) {
      ::kill(worker->pid, signal);
    }
  }
}

void WorkerGroup::stop(int first, milliseconds grace, const std::function<bool()>& hurry) {
  signal(first);
  const auto deadline = Clock::now() + grace;
  while (running_ > 0 && Clock::now() < deadline && !(hurry && hurry())) {
    wait(until(deadline));
  }
  // If the worker forked, its process group outlives it. Kill the rest of each group, too.
  for (const Process& process : processes_) {
    process.signal_group(SIGKILL);
  }
  const auto stuck = Clock::now() + kStuck;
  while (running_ > 0 && Clock::now() < stuck) {
    wait(until(stuck));
  }
}

void WorkerGroup::finish_output() {
  for (const auto& pump : pumps_) {
    pump->finish();
  }
}

}  // namespace lockstep::launch
