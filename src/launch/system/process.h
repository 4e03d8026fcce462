// One child process: its own session and process group, a parent-death signal, two pipes, a pidfd.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::launch {

/// How a process ended.
struct ExitStatus {
  int code = 0;    // where it exited
  int signal = 0;  // where a signal ended it, else 0
  bool core = false;

  bool succeeded() const { return code == 0 && signal == 0; }
  /// As a shell tells it: the code, or 128 + the signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  /// As torchrun tells it: the code, or minus the signal.
  int signed_code() const { return signal != 0 ? -signal : code; }
};

/// "SIGKILL"; "SIG42" for a number without a name.
std::string signal_name(int signal);
/// The number of "SIGTERM" or "TERM"; nothing for a name that is unknown.
std::optional<int> signal_number(const std::string& name);

/// What to run.
struct ProcessSpec {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  /// Instead of argv: the child is a copy of this process that calls this and exits with what it
  /// returns. It finds `environment` in its variables, and no descriptor that a program would not.
  std::function<int()> body;
  std::vector<std::string> environment;  // whole, each NAME=VALUE
  bool inherit_stdin = false;            // else /dev/null, or
  int input = -1;                        // this descriptor, which stays the caller's
  std::vector<int> cpus;                 // the CPUs that it is bound to; empty: not bound
  int handed_on = -1;                    // a descriptor that the child has by the same number
};

/// A running child. Move-only. The destructor closes the descriptors and takes a dead child from
/// the kernel; it neither kills nor waits.
class Process {
 public:
  /// Starts it, and returns when its program runs. SIGKILL reaches it when the calling *thread*
  /// ends, so start children on a thread that lives as long as they may. An Error (environment)
  /// names a program that cannot be run.
  static Process start(const ProcessSpec& spec);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  /// Readable when the process has ended.
  int pid_descriptor() const { return pid_descriptor_; }
  /// The read ends of its stdout and stderr; non-blocking.
  int output() const { return output_; }
  int error_output() const { return error_output_; }
  /// Its status where it has ended, nothing where it still runs. Does not block. The kernel keeps
  /// the dead process until the destructor, so that signal_group() never meets a stranger.
  std::optional<ExitStatus> status();
  /// Sends a signal to the process group. False where nobody is left in it.
  bool signal_group(int signal) const;

 private:
  Process() = default;

  pid_t pid_ = -1;
  int pid_descriptor_ = -1, output_ = -1, error_output_ = -1;
  std::optional<ExitStatus> status_;
};

}  // namespace lockstep::launch
