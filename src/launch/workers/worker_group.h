// The workers of one attempt on this machine: started together, watched, ended together.
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
  std::filesystem::path error_file;  // where record() writes its error
  std::filesystem::path
      status_file;  // where it tells what it does (base/rank_status.h); empty: nowhere
};

/// One worker that runs or has ended.
struct Worker {
  int rank = 0, local_rank = 0;
  pid_t pid = 0;
  std::filesystem::path error_file, status_file;
  std::optional<ExitStatus> status;
  std::chrono::system_clock::time_point ended;
  int order = -1;             // index in the order in which the group was seen ending
  bool asked_to_end = false;  // it ended after the group had been told to: not a failure of its own
  LineTail tail;
};

/// Starts, watches and ends. One thread, the one that waits on the loop.
class WorkerGroup {
 public:
  /// Starts all; where one cannot be started, those before it are killed and the Error goes on.
  WorkerGroup(EventLoop& loop, std::vector<WorkerSpec> specs);
  /// Kills what still runs.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  int running() const { return running_; }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  /// Those that ended with anything but 0 or kExitPreempted before they were asked to end, in the
  /// order seen.
  std::vector<const Worker*> failures() const;
  /// Some worker ended with kExitPreempted.
  bool preempted() const;

  /// Waits for the next event, at most `timeout`; shows lines that were begun.
  void wait(std::chrono::milliseconds timeout);
  /// Sends a signal to every process group that has a running worker; what ends from now on was
  /// asked to.
  void signal(int signal);
  /// Sends a signal to every running worker itself, and expects nothing of it.
  void pass_on(int signal);
  /// signal(first), at most `grace`, SIGKILL; returns when all have ended (or, stuck in the kernel,
  /// 5 s after the SIGKILL). `hurry`, where given, is asked after every event: true skips the rest
  /// of the grace.
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
