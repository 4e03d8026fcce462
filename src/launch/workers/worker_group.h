// Workers of one attempt on this machine.
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

/// Worker to start.
struct WorkerSpec {
  int rank = 0, local_rank = 0;
  ProcessSpec process;
  StreamRoute output, error_output;
  std::filesystem::path error_file;   // path of record()'s error file
  std::filesystem::path status_file;  // path of its rank status (base/rank_status.h); empty: none
};

/// Worker that runs or has ended.
struct Worker {
  int rank = 0, local_rank = 0;
  pid_t pid = 0;
  std::filesystem::path error_file, status_file;
  std::optional<ExitStatus> status;
  std::chrono::system_clock::time_point ended;
  int order = -1;  // position in the order in which ends were observed
  bool asked_to_end =
      false;  // the group was asked to end before this worker ended, so it is not a failure
  LineTail tail;
};

/// Must only be used on the thread that waits on the event loop.
class WorkerGroup {
 public:
  /// Starts all workers. If one cannot be started, kills those already started and rethrows the
  /// Error.
  WorkerGroup(EventLoop& loop, std::vector<WorkerSpec> specs);
  /// Kills the workers that are still running.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  int running() const { return running_; }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  /// Returns the workers that ended with a code other than 0 or kExitPreempted before they were
  /// asked to end, in the order in which this was observed.
  std::vector<const Worker*> failures() const;
  /// Returns true if a worker ended with kExitPreempted.
  bool preempted() const;

  /// Waits for the next event for at most `timeout`. Also shows incomplete lines.
  void wait(std::chrono::milliseconds timeout);
  /// Sends a signal to the process group of every running worker. If a worker ends later, it is
  /// assumed to have been asked to.
  void signal(int signal);
  /// Sends a signal to every running worker process without expecting it to end.
  void pass_on(int signal);
  /// Sends `first`, waits for at most `grace`, and sends SIGKILL. Returns when all workers have
  /// ended, or 5 s after SIGKILL if one is stuck in the kernel. If `hurry` is set, it is called
  /// after every event; if it returns true, SIGKILL is sent immediately.
  void stop(int first, std::chrono::milliseconds grace, const std::function<bool()>& hurry = {});
  /// Reads the rest of the output from every pipe.
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
