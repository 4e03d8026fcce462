// Cleanup of processes: finds those that workers forked, even outside their process group, and a
// keeper that does so if the supervisor is killed.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::launch {

/// From now on, orphans among this process's descendants become its children
/// (PR_SET_CHILD_SUBREAPER), so that descendants_of(getpid()) finds them.
void adopt_orphans();
/// Returns all processes below `root`, without `root`, in no particular order. Reads /proc.
std::vector<pid_t> descendants_of(pid_t root);
/// Returns all processes whose initial environment contains `text`. Reads /proc, which hides
/// processes of other users.
std::vector<pid_t> processes_with_environment(const std::string& text);

/// Terminates every descendant of this process except `spared` and their descendants: SIGTERM, at
/// most `grace`, SIGKILL; reaps them. Returns how many were running.
int end_descendants(const std::vector<pid_t>& spared, std::chrono::milliseconds grace);

/// A small child process that kills processes with `tag` in their environment (SIGKILL) and removes
/// registered folders if this process disappears without destroying the object: the parent-death
/// signal reaches workers only, not what they forked.
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
  int end_ = -1;  // receives folders, and kQuiet; the keeper kills when it is closed
};

}  // namespace lockstep::launch
