// Lock of an output folder, which allows only one run at a time. A token distinguishes unfinished
// saves of this run from those of other runs and of earlier rounds.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Identity of a run that takes an output folder.
struct RunIdentity {
  std::string job;  // random id of the launch, the same in all rounds; empty: unknown
  int round = 0;
  int term = 0;  // number of earlier coordinators of the job; rounds of a higher term are newer
};

/// Returns the token that distinguishes a round's unfinished saves from those of other rounds:
/// letters, digits and dashes.
std::string run_token(const RunIdentity& run);
std::string own_host();

/// Lock on `output_dir`/.lockstep-lock. It is released at the latest when the process ends. Every
/// rank has an instance; that of rank 0 holds the file lock. A later round of the same job takes
/// the folder over from an earlier round whose rank 0 is still alive (disconnected or stopped). The
/// earlier round can then neither commit nor take the folder back.
class OutputDirLock {
 public:
  static constexpr const char* kFile = ".lockstep-lock";

  /// Takes the lock. The folder must exist. Waits briefly for a run that is about to end. If
  /// another run holds the lock, throws Error (environment) on all ranks and names the holder. Must
  /// be called on every rank.
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

/// Returns true if a run currently holds the lock of the folder.
bool is_held(const std::filesystem::path& output_dir);

}  // namespace lockstep::checkpoint
