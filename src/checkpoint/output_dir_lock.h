// One run an output folder: who holds it, and the token that tells its unfinished saves from those
// of other runs and of earlier rounds.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// Who takes a folder.
struct RunIdentity {
  std::string job;  // drawn for each launch, the same through its rounds; empty: none told
  int round = 0;
  int term = 0;  // how many hosts the job had before: a later one's rounds come after an earlier's
};

/// What tells a round's unfinished saves from those of others: letters, digits and dashes.
std::string run_token(const RunIdentity& run);
std::string own_host();

/// A lock on `output_dir`/.lockstep-lock, which ends with the process at the latest. One a rank;
/// rank 0 holds the lock. A later round of the same job takes the folder from an earlier one whose
/// rank 0 still lives (it was cut off, or stands still): that one cannot commit any more, nor take
/// the folder back.
class OutputDirLock {
 public:
  static constexpr const char* kFile = ".lockstep-lock";

  /// Every rank must call; the folder is there. Waits a moment for a run that is about to end.
  /// Error (environment) on all ranks, naming the holder, where another run has it.
  static std::unique_ptr<OutputDirLock> take(
      const std::filesystem::path& output_dir,
      const RunIdentity& run,
      comm::Communicator& communicator);
  /// Lets the folder go.
  ~OutputDirLock();
  OutputDirLock(const OutputDirLock&) = delete;
  OutputDirLock& operator=(const OutputDirLock&) = delete;

  /// In the names of this run's saves; the same on every rank.
  const std::string& token() const { return token_; }
  /// Rank 0's: Error (checkpoint) where another run or round has taken the folder meanwhile. Does
  /// nothing on the other ranks.
  void check() const;

 private:
  OutputDirLock() = default;
  void lock(const RunIdentity& run);
  void take_over();

  std::filesystem::path file_;
  std::string token_, text_;
  int descriptor_ = -1;  // rank 0's, where the file system can lock
};

/// Whether a run holds the folder now.
bool is_held(const std::filesystem::path& output_dir);

}  // namespace lockstep::checkpoint
