// Nothing is left running: finding what workers forked, even where it left their process group, and
// a keeper that does it when the supervisor itself was killed.
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
/// Every process below `root`, in no order; `root` itself is not among them. From /proc.
std::vector<pid_t> descendants_of(pid_t root);
/// Every process whose environment at its start held `text`. From /proc; those of other users are
/// not seen.
std::vector<pid_t> processes_with_environment(const std::string& text);

/// Ends every descendant of this process but `spared` and what is below them: SIGTERM, at most
/// `grace`, SIGKILL; takes their statuses. Returns how many had to be ended.
int end_descendants(const std::vector<pid_t>& spared, std::chrono::milliseconds grace);

/// A small child process that ends what carries `tag` in its environment (SIGKILL), and removes the
/// folders that it was told of, once this process is gone without having destroyed the object: the
/// parent-death signal reaches workers alone, not what they forked.
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
  int end_ = -1;  // takes folders, and kQuiet; kills when this is closed
};

}  // namespace lockstep::launch
