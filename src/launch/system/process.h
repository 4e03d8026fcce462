// Child process with its own session and process group, a parent-death signal, two pipes and a
// pidfd.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::launch {

/// Exit status of a process.
struct ExitStatus {
  int code = 0;    // exit code, if it exited
  int signal = 0;  // signal that ended it, otherwise 0
  bool core = false;

  bool succeeded() const { return code == 0 && signal == 0; }
  /// Returns the code in the shell's form: the exit code, or 128 + the signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  /// Returns the code in torchrun's form: the exit code, or minus the signal.
  int signed_code() const { return signal != 0 ? -signal : code; }
};

/// Returns a name such as "SIGKILL", or "SIG42" for a number without a name.
std::string signal_name(int signal);
/// Returns the number of a signal such as "SIGTERM" or "TERM", or nullopt for an unknown name.
std::optional<int> signal_number(const std::string& name);

/// Program, environment and descriptors of a child.
struct ProcessSpec {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  /// If set, `argv` is not used. The child is then a copy of this process that calls the function
  /// and exits with its result. It has `environment` as its environment and inherits the same
  /// descriptors as a program would.
  std::function<int()> body;
  std::vector<std::string> environment;  // whole, each NAME=VALUE
  bool inherit_stdin = false;            // otherwise /dev/null or `input`
  int input = -1;                        // descriptor for stdin, owned by the caller
  std::vector<int> cpus;                 // CPUs to bind the child to; empty: not bound
  int handed_on = -1;                    // descriptor that the child inherits under the same number
};

/// Running child. Move-only. The destructor closes the descriptors and reaps a dead child. It
/// neither kills a running child nor waits for it.
class Process {
 public:
  /// Starts the child and returns when its program runs. The child gets SIGKILL when the calling
  /// *thread* ends, so this thread must outlive the child. Throws Error (environment) if the
  /// program cannot be run.
  static Process start(const ProcessSpec& spec);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  /// Returns the pidfd, which is readable when the process has ended.
  int pid_descriptor() const { return pid_descriptor_; }
  /// Return the read ends of the child's stdout and stderr, which are non-blocking.
  int output() const { return output_; }
  int error_output() const { return error_output_; }
  /// Returns the exit status, or nullopt if the child is running. Does not block. The child is
  /// reaped only in the destructor, so that signal_group() cannot reach an unrelated process.
  std::optional<ExitStatus> status();
  /// Sends a signal to the process group. Returns false if the group is empty.
  bool signal_group(int signal) const;

 private:
  Process() = default;

  pid_t pid_ = -1;
  int pid_descriptor_ = -1, output_ = -1, error_output_ = -1;
  std::optional<ExitStatus> status_;
};

}  // namespace lockstep::launch
