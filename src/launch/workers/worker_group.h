// The workers of one attempt on this machine.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/system/event_loop.h"
#include "launch/system/process.h"
#include "launch/workers/output.h"

namespace lockstep::launch {

/// One worker to start.
struct WorkerSpec {
  int rank = 0, local_rank = 0;
  ProcessSpec process;
  StreamRoute output, error_output;
  std::filesystem::path error_file;   // path of record()'s error file
  std::filesystem::path status_file;  // path of its rank status (base/rank_status.h); empty: none
};

/// A worker that runs or has ended.
struct Worker {
  int rank = 0, local_rank = 0;
  pid_t pid = 0;
  std::filesystem::path error_file, status_file;
  std::optional<ExitStatus> status;
  std::chrono::system_clock::time_point ended;
  int order = -1;  // index in the observed order of ends
  bool asked_to_end =
      false;  // it ended after the group was asked to end, so it did not fail by itself
  LineTail tail;
};

/// Used by one thread, the one that waits on the loop.
class WorkerGroup {
 public:
  /// Starts all workers; if one cannot be started, kills the earlier ones and rethrows the Error.
  WorkerGroup(EventLoop& loop, std::vector<WorkerSpec> specs);
  /// Kills running workers.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  int running() const { return running_; }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  /// Workers that ended with a code other than 0 or kExitPreempted before they were asked to end,
  /// in observed order.
  std::vector<const Worker*> failures() const;
  /// True if a worker ended with kExitPreempted.
  bool preempted() const;

  /// Waits for the next event, at most `timeout`; shows incomplete lines.
  void wait(std::chrono::milliseconds timeout);
  /// Sends a signal to every process group with a running worker; later ends count as requested.
  void signal(int signal);
  /// Sends a signal to every running worker process without expecting it to end.
  void pass_on(int signal);
  /// signal(first), at most `grace`, SIGKILL; returns when all have ended (or, if stuck in the
  /// kernel, 5 s after the SIGKILL). `hurry`, if set, is called after every event: true skips the
  /// rest of the grace.
  void stop(int first, std::chrono::milliseconds grace, const std::function<bool()>& hurry = {});
  /// Reads the rest of every pipe.
  void finish_output();

 private:
  void start(WorkerSpec spec);
  void on_exit(size_t index);

  EventLoop& loop_;
  std::vector<Process> processes_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<OutputPump>> pumps_;
  int running_ = 0, ended_ = 0;
  bool asked_ = false;
};

}  // namespace lockstep::launch
