// Lock of an output folder: one run at a time. A token distinguishes its saves from those of other
// runs and of earlier rounds, and the lock file names the token of the run that may commit.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Identity of a run that takes an output folder.
struct RunIdentity {
  std::string job;  // the same in all rounds; empty if unknown
  int round = 0;
  int term = 0;           // number of earlier coordinators; rounds of a higher term are newer
  bool is_unique = true;  // `job` is random per launch; false: several runs may have it
};

/// Returns a token that no other round or run has: letters, digits and dashes.
std::string run_token(const RunIdentity& run);
/// True if `run` is a later round of the launch of this job, term and round.
bool is_later_round(const RunIdentity& run, const std::string& job, int term, int round);
std::string own_host();
/// Identifies the scope of this process's PID: the kernel and the PID namespace, because several
/// machines can have the same host name. Empty if unknown.
std::string own_processes();
/// True if a process of this scope has ended. False for a process that is elsewhere.
bool is_dead(const std::string& processes, int64_t pid);

/// Lock on `output_dir`/.lockstep-lock, released at the latest when the process ends. Every rank
/// has one; rank 0's holds the file lock. The file is never removed: it names the run that took the
/// folder last, and says whether that run has released it. A run whose token it does not contain
/// can no longer commit.
///
/// A run takes the folder from another one that has not released it only if that run has ended or
/// is an earlier round of the same launch. A run on another machine counts as ended if it has not
/// touched the file for 30 s.
class OutputDirLock {
 public:
  static constexpr const char* kFile = ".lockstep-lock";

  /// Takes the lock. Every rank must call; the folder must exist. Waits briefly for a run that is
  /// about to end. Throws Error (environment) on all ranks, naming the holder, if another run has
  /// the folder, or if a later round of the same launch has had it.
  static std::unique_ptr<OutputDirLock> take(
      const std::filesystem::path& output_dir,
      const RunIdentity& run,
      comm::Communicator& communicator);
  /// Releases the folder.
  ~OutputDirLock();
  OutputDirLock(const OutputDirLock&) = delete;
  OutputDirLock& operator=(const OutputDirLock&) = delete;

  /// Returns the token in the names of this run's saves, which is the same on every rank.
  const std::string& token() const { return token_; }
  /// On rank 0, throws Error (checkpoint) unless the lock file contains this run's token. Does
  /// nothing on other ranks.
  void check() const;

 private:
  OutputDirLock() = default;
  void lock(const RunIdentity& run);
  bool take_free(const RunIdentity& run);
  void take_over();
  void write(const std::string& text) const;
  void touch();

  std::filesystem::path file_;
  std::string token_, text_, released_text_;
  int descriptor_ = -1;  // rank 0 only
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;  // protected by mutex_
  std::thread touching_;
};

/// Returns true if a run currently holds the lock of the folder.
bool is_held(const std::filesystem::path& output_dir);

}  // namespace lockstep::checkpoint
