// Lock of an output folder: one run at a time. A token distinguishes its unfinished saves from
// those of other runs and of earlier rounds.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Identity of a run that takes an output folder.
struct RunIdentity {
  std::string job;  // random per launch, the same in all rounds; empty if unknown
  int round = 0;
  int term = 0;  // number of earlier coordinators of the job; rounds of a higher term are newer
};

/// Returns the token that distinguishes a round's unfinished saves from those of other rounds:
/// letters, digits and dashes.
std::string run_token(const RunIdentity& run);
std::string own_host();

/// Lock on `output_dir`/.lockstep-lock, released at the latest when the process ends. Every rank
/// has one; rank 0's holds the file lock. A later round of the same job takes the folder from an
/// earlier round whose rank 0 is still alive (disconnected or stopped). The earlier round can then
/// neither commit nor take the folder back.
class OutputDirLock {
 public:
  static constexpr const char* kFile = ".lockstep-lock";

  /// Takes the lock. Every rank must call; the folder must exist. Waits briefly for a run that is
  /// about to end. Throws Error (environment) on all ranks, naming the holder, if another run has
  /// the folder.
  static std::unique_ptr<OutputDirLock> take(
      const std::filesystem::path& output_dir,
      const RunIdentity& run,
      comm::Communicator& communicator);
  /// Releases the folder.
  ~OutputDirLock();
  OutputDirLock(const OutputDirLock&) = delete;
  OutputDirLock& operator=(const OutputDirLock&) = delete;

  /// Part of the names of this run's saves; the same on every rank.
  const std::string& token() const { return token_; }
  /// On rank 0, throws Error (checkpoint) if another run or round has taken the folder. Does
  /// nothing on other ranks.
  void check() const;

 private:
  OutputDirLock() = default;
  void lock(const RunIdentity& run);
  void take_over();

  std::filesystem::path file_;
  std::string token_, text_;
  int descriptor_ = -1;  // rank 0 only, and only if the file system supports locks
};

/// True if a run holds the folder now.
bool is_held(const std::filesystem::path& output_dir);

}  // namespace lockstep::checkpoint
