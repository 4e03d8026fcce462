// A child process with its own session and process group, a parent-death signal, two pipes and a
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
  int code = 0;    // if it exited
  int signal = 0;  // if a signal ended it, otherwise 0
  bool core = false;

  bool succeeded() const { return code == 0 && signal == 0; }
  /// Code in the shell's form: the exit code, or 128 + the signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  /// Code in torchrun's form: the exit code, or minus the signal.
  int signed_code() const { return signal != 0 ? -signal : code; }
};

/// "SIGKILL"; "SIG42" for a number without a name.
std::string signal_name(int signal);
/// Number of "SIGTERM" or "TERM"; nullopt for an unknown name.
std::optional<int> signal_number(const std::string& name);

/// Program, environment and descriptors of a child.
struct ProcessSpec {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  /// Instead of argv: the child is a copy of this process that calls this function and exits with
  /// its result. It sees `environment` in its variables and inherits the same descriptors as a
  /// program would.
  std::function<int()> body;
  std::vector<std::string> environment;  // whole, each NAME=VALUE
  bool inherit_stdin = false;            // otherwise /dev/null or `input`
  int input = -1;                        // descriptor for stdin, owned by the caller
  std::vector<int> cpus;                 // the CPUs that it is bound to; empty: not bound
  int handed_on = -1;                    // descriptor that the child inherits under the same number
};

/// A running child. Move-only. The destructor closes the descriptors and reaps a dead child; it
/// neither kills nor waits.
class Process {
 public:
  /// Starts the child and returns when its program runs. The child gets SIGKILL when the calling
  /// *thread* ends, so use a thread that lives long enough. Throws Error (environment) if the
  /// program cannot be run.
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
  /// Returns its exit status, or nullopt while it runs. Does not block. The child is reaped in the
  /// destructor, so that signal_group() never reaches an unrelated process.
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
