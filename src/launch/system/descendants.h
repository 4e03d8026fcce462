// Cleans up processes. Finds the processes that workers forked, also outside their process group. A
// separate keeper process cleans up if the supervisor is killed.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::launch {

/// Makes this process the parent of orphans among its descendants (PR_SET_CHILD_SUBREAPER), so that
/// descendants_of(getpid()) finds them.
void adopt_orphans();
/// Returns all descendants of `root`, in no particular order. Reads /proc.
std::vector<pid_t> descendants_of(pid_t root);
/// Returns all processes whose initial environment contains `text`. Reads /proc, which hides the
/// environment of other users' processes.
std::vector<pid_t> processes_with_environment(const std::string& text);

/// Ends every descendant of this process except `spared` and their descendants. Sends SIGTERM,
/// waits for at most `grace`, and sends SIGKILL. Reaps them, and returns how many there were.
int end_descendants(const std::vector<pid_t>& spared, std::chrono::milliseconds grace);

/// Small child process that cleans up if this process ends without destroying the object. It kills
/// (SIGKILL) the processes with `tag` in their environment and removes registered folders. It is
/// needed because the kernel's parent-death signal reaches only workers, not the processes that
/// they forked.
class Keeper {
 public:
  explicit Keeper(const std::string& tag);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  pid_t pid() const { return pid_; }
  void remove_afterwards(const std::filesystem::path& folder) const;

 private:
  pid_t pid_ = -1;
  int end_ = -1;  // sends folders and kQuiet to the keeper, which kills when it is closed
};

}  // namespace lockstep::launch
