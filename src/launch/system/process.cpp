// Starts child processes.
#include "launch/system/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/begin_process.h"
#include "base/error.h"
#include "base/format.h"

namespace lockstep::launch {
namespace {

void close_if_open(int& descriptor) {
  if (descriptor >= 0) {
    ::close(std::exchange(descriptor, -1));
  }
}

/// Closes the ends that are left.
struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format("cannot create a pipe for a worker: {}", std::strerror(errno)),
          "raise the limit of open files: ulimit -n");
    }
    read = ends[0];
    write = ends[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_if_open(read);
    close_if_open(write);
  }

  int read = -1, write = -1;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    result.push_back(const_cast<char*>(text.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

struct ChildPlan {
  char* const* argv;
  char* const* environment;
  pid_t parent;
  int input, output, error_output, failure;
  const cpu_set_t* cpus;
  int handed_on;
};

// Runs in the child after fork. Only system calls are allowed, because another thread may have held
// a lock.
void prepare(const ChildPlan& plan) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) {
    ::_exit(127);  // the parent died before prctl()
  }
  if (plan.cpus != nullptr) {
    ::sched_setaffinity(0, sizeof *plan.cpus, plan.cpus);
  }
  if (plan.input >= 0) {
    ::dup2(plan.input, STDIN_FILENO);
  }
  ::dup2(plan.output, STDOUT_FILENO);
  ::dup2(plan.error_output, STDERR_FILENO);
  if (plan.handed_on >= 0) {
    ::fcntl(plan.handed_on, F_SETFD, 0);
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become(const ChildPlan& plan) {
  ::execvpe(plan.argv[0], plan.argv, plan.environment);
  const int reason = errno;
  [[maybe_unused]] const auto written = ::write(plan.failure, &reason, sizeof reason);
  ::_exit(127);
}

// Closes the descriptors that exec would close, including plan.failure.
void close_on_exec() {
  std::vector<int> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    descriptors.push_back(std::stoi(entry.path().filename().string()));
  }
  for (const int descriptor : descriptors) {
    if ((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) !=
        0) {  // -1: the iterator's own descriptor, already closed
      ::close(descriptor);
    }
  }
}

// Locks of glibc are consistent after fork. Other threads of the launcher hold no locks that `body`
// needs.
[[noreturn]] void call(const ProcessSpec& spec) noexcept {
  ::clearenv();
  for (const std::string& entry : spec.environment) {
    ::putenv(::strdup(entry.c_str()));
  }
  close_on_exec();
  begin_process();
  const int code = spec.body();
  std::fflush(nullptr);
  ::_exit(code);
}

constexpr std::array<std::pair<int, const char*>, 21> kSignals{{
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGCONT, "SIGCONT"},
    {SIGSTOP, "SIGSTOP"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"},
    {SIGTSTP, "SIGTSTP"},
}};

}  // namespace

std::string signal_name(int signal) {
  for (const auto& [number, name] : kSignals) {
    if (number == signal) {
      return name;
    }
  }
  return fmt::format("SIG{}", signal);
}

std::optional<int> signal_number(const std::string& name) {
  const std::string full = name.starts_with("SIG") ? name : "SIG" + name;
  for (const auto& [number, known] : kSignals) {
    if (full == known) {
      return number;
    }
  }
  return std::nullopt;
}

Process Process::start(const ProcessSpec& spec) {
  if (spec.argv.empty() && !spec.body) {
    throw Error(ErrorKind::kInternal, "the worker has no program");
  }
  const std::vector<char*> argv = pointers(spec.argv), environment = pointers(spec.environment);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : spec.cpus) {
    CPU_SET(cpu, &cpus);
  }
  Pipe output, error_output, failure;
  int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int input = spec.inherit_stdin ? -1 : spec.input >= 0 ? spec.input : nothing;
  const ChildPlan plan{
      argv.data(),
      environment.data(),
      ::getpid(),
      input,
      output.write,
      error_output.write,
      failure.write,
      spec.cpus.empty() ? nullptr : &cpus,
      spec.handed_on};
  std::fflush(nullptr);  // otherwise the child would write the buffered output again
  const pid_t pid = ::fork();
  if (pid == 0) {
    prepare(plan);
    if (spec.body) {
      call(spec);
    }
    become(plan);
  }
  const int fork_error = errno;
  for (int* const descriptor : {&nothing, &output.write, &error_output.write, &failure.write}) {
    close_if_open(*descriptor);
  }
  Process process;
  process.pid_ = pid;
  process.output_ = std::exchange(output.read, -1);
  process.error_output_ = std::exchange(error_output.read, -1);
  if (pid < 0) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot start a worker: {}", std::strerror(fork_error)),
        "raise the limits of processes and memory (ulimit -u, the cgroup's pids.max)");
  }
  process.pid_descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  const int unwatched = process.pid_descriptor_ < 0 ? errno : 0;
  int reason = 0;
  ssize_t size = 0;
  do {
    size = ::read(failure.read, &reason, sizeof reason);
  } while (size < 0 && errno == EINTR);
  const bool failed = size == sizeof reason;
  if (failed || unwatched != 0) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  if (failed) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot run '{}': {}", spec.argv[0], std::strerror(reason)),
        "check the program's name, its permissions, and PATH");
  }
  if (unwatched != 0) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("cannot watch '{}': pidfd_open: {}", spec.argv[0], std::strerror(unwatched)),
        "use Linux 5.3 or later, and a container that allows this call");
  }
  for (const int descriptor : {process.output_, process.error_output_}) {
    ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
  }
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pid_descriptor_(std::exchange(other.pid_descriptor_, -1)),
      output_(std::exchange(other.output_, -1)),
      error_output_(std::exchange(other.error_output_, -1)),
      status_(other.status_) {}

Process::~Process() {
  if (pid_ > 0) {
    ::waitpid(pid_, nullptr, WNOHANG);
  }
  for (const int descriptor : {pid_descriptor_, output_, error_output_}) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
}

std::optional<ExitStatus> Process::status() {
  siginfo_t info{};
  // WNOWAIT: as long as the dead process is not reaped, the number of its process group is not
  // reused.
  if (!status_ && ::waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == pid_) {
    ExitStatus status;
    if (info.si_code == CLD_EXITED) {
      status.code = info.si_status;
    } else {
      status.signal = info.si_status;
      status.core = info.si_code == CLD_DUMPED;
    }
    status_ = status;
  }
  return status_;
}

bool Process::signal_group(int signal) const {
  return ::kill(-pid_, signal) == 0;
}

}  // namespace lockstep::launch
