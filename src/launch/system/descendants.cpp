// Finds and ends descendant processes.
#include "launch/system/descendants.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{5};
constexpr std::string_view kQuiet = "quiet";  // not a path: paths are absolute

std::string read_proc(pid_t pid, const char* name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string text;
  if (descriptor < 0) {
    return text;
  }
  char part[4096];
  ssize_t size = 0;
  while ((size = ::read(descriptor, part, sizeof part)) > 0) {
    text.append(part, static_cast<size_t>(size));
  }
  ::close(descriptor);
  return text;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> result;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) {
    return result;
  }
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size()) {
      result.push_back(pid);
    }
  }
  ::closedir(folder);
  return result;
}

struct Stat {
  pid_t parent = 0;
  char state = '?';
};

// Parses /proc/PID/stat: "pid (name) state ppid ...". The name may contain any character and ends
// at the last ')'.
Stat stat_of(pid_t pid) {
  const std::string text = read_proc(pid, "stat");
  const size_t end = text.rfind(") ");
  Stat result;
  if (end != std::string::npos && end + 4 < text.size()) {
    result.state = text[end + 2];
    std::from_chars(text.data() + end + 4, text.data() + text.size(), result.parent);
  }
  return result;
}

void collect(pid_t root, const std::multimap<pid_t, pid_t>& children, std::set<pid_t>& found) {
  for (auto [at, end] = children.equal_range(root); at != end; ++at) {
    if (found.insert(at->second).second) {
      collect(at->second, children, found);
    }
  }
}

std::set<pid_t> below(pid_t root, const std::multimap<pid_t, pid_t>& children) {
  std::set<pid_t> found;
  collect(root, children, found);
  return found;
}

std::multimap<pid_t, pid_t> family_tree() {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes()) {
    children.emplace(stat_of(pid).parent, pid);
  }
  return children;
}

// Returns the remaining descendants that are not spared. Reaps this process's dead children.
std::vector<pid_t> remaining(const std::vector<pid_t>& spared) {
  const auto children = family_tree();
  std::set<pid_t> ours = below(::getpid(), children);
  for (const pid_t pid : spared) {
    ours.erase(pid);
    for (const pid_t lower : below(pid, children)) {
      ours.erase(lower);
    }
  }
  std::vector<pid_t> result;
  for (const pid_t pid : ours) {
    const Stat stat = stat_of(pid);
    if (stat.state == 'Z' && stat.parent == ::getpid()) {
      ::waitpid(pid, nullptr, WNOHANG);
    } else if (stat.state != 'Z' && stat.state != 'X' && stat.state != '?') {
      result.push_back(pid);
    }
  }
  return result;
}

void kill_tagged(const std::string& tag) {
  // Repeat, because a process may fork while the list is read.
  int quiet = 0;
  for (int round = 0; round < 200 && quiet < 2; ++round) {
    const std::vector<pid_t> found = processes_with_environment(tag);
    quiet = found.empty() ? quiet + 1 : 0;
    for (const pid_t pid : found) {
      ::kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(kPause);
  }
}

[[noreturn]] void keep(int end, const std::string& tag) {
  ::setsid();
  ::prctl(PR_SET_NAME, "lockstep-keeper");
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Close the supervisor's other descriptors. Otherwise a reader of its stdout would wait until
  // this process ends.
  if (end != 3) {
    ::dup2(end, 3);
  }
  ::close_range(4, ~0U, 0);
  ::close_range(0, 2, 0);
  if (::chdir("/") != 0) {
    ::_exit(1);
  }
  std::vector<std::filesystem::path> folders;
  char message[PATH_MAX];
  ssize_t size = 0;
  while ((size = ::read(3, message, sizeof message)) != 0) {
    const std::string_view text(message, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    if (text == kQuiet) {
      ::_exit(0);
    }
    if (!text.empty()) {
      folders.emplace_back(text);
    }
  }
  kill_tagged(tag);
  for (const std::filesystem::path& folder : folders) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  ::_exit(0);
}

}  // namespace

void adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

std::vector<pid_t> descendants_of(pid_t root) {
  const std::set<pid_t> found = below(root, family_tree());
  return {found.begin(), found.end()};
}

std::vector<pid_t> processes_with_environment(const std::string& text) {
  std::vector<pid_t> result;
  for (const pid_t pid : all_processes()) {
    if (read_proc(pid, "environ").find(text) != std::string::npos) {
      result.push_back(pid);
    }
  }
  return result;
}

int end_descendants(const std::vector<pid_t>& spared, std::chrono::milliseconds grace) {
  std::vector<pid_t> left = remaining(spared);
  const int count = static_cast<int>(left.size());
  const auto deadline = Clock::now() + grace;
  if (grace.count() > 0) {
    for (const pid_t pid : left) {
      ::kill(pid, SIGTERM);
    }
    while (!left.empty() && Clock::now() < deadline) {
      std::this_thread::sleep_for(kPause);
      left = remaining(spared);
    }
  }
  const auto give_up = Clock::now() + std::chrono::seconds(2);
  while (!left.empty() && Clock::now() < give_up) {
    for (const pid_t pid : left) {
      ::kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(kPause);
    left = remaining(spared);
  }
  return count;
}

Keeper::Keeper(const std::string& tag) {
  int ends[2];
  // Use a socket pair instead of a pipe: writing to it cannot end this process with SIGPIPE if the
  // keeper was killed.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return;
  }
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(ends[1]);
    keep(ends[0], tag);
  }
  ::close(ends[0]);
  end_ = ends[1];
}

void Keeper::remove_afterwards(const std::filesystem::path& folder) const {
  if (pid_ > 0) {
    (void)::send(end_, folder.c_str(), folder.native().size(), MSG_NOSIGNAL);
  }
}

Keeper::~Keeper() {
  if (pid_ > 0) {
    (void)::send(end_, kQuiet.data(), kQuiet.size(), MSG_NOSIGNAL);
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
  }
}

}  // namespace lockstep::launch
