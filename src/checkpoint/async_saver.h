// Background saving: training waits neither for the disk nor for copies of state that the saver has
// already read.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/copy_on_write_state.h"
#include "checkpoint/save_cache.h"
#include "checkpoint/snapshot.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// One saver per rank. All ranks call every method in the same order from the training thread.
///
/// From the first save on it owns a host buffer for a copy of this rank's pieces (for AdamW with
/// float32 masters: 14 bytes for each parameter that this rank writes). Pieces on a GPU are copied
/// into pinned memory while the GPU computes. Pieces on the host are copied only if
/// before_state_update() finds them unread.
class AsyncSaver {
 public:
  /// `communicator` is the saver thread's own group; training uses other groups at the same time.
  explicit AsyncSaver(comm::Communicator communicator);
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  /// Waits for a save in progress. Logs a failure that no caller has waited for.
  ~AsyncSaver();

  /// Waits for the previous save (rethrowing its failure), starts copying GPU pieces, and returns.
  /// save_checkpoint then runs on the saver thread and reads host pieces in place. After the commit
  /// the saver thread calls `then` on every rank; rank 0 rotates checkpoints in it.
  void save(
      const std::filesystem::path& folder,
      std::span<const Piece> pieces,
      std::string state,
      SmallFiles files,
      SaveOptions options = {},
      std::function<void()> then = {});

  /// Must be called before the pieces of the last save are modified, or before work that modifies
  /// them is queued on a GPU.
  void before_state_update();
  [[deprecated("use before_state_update()")]] void let_write() { before_state_update(); }

  /// Blocks until the last save has ended; rethrows its failure once.
  void wait();

  /// True if this rank's background save failed and the error is unreported. Saves of other ranks
  /// may fail later.
  bool failed() const { return failed_; }

  /// True if the last save has ended without a failure: the checkpoint is committed, and `then` has
  /// returned.
  bool committed() const { return committed_; }

  /// Seconds that save() and wait() have blocked the training thread.
  double seconds_held() const { return held_.count(); }
  /// The part of seconds_held() spent waiting for other ranks' writes.
  double seconds_held_for_others() const { return held_for_others_; }

 private:
  void lend(std::span<const Piece> pieces);

  comm::Communicator communicator_;
  at::Tensor memory_;  // reused between saves, so that its pages are faulted in once
  std::vector<Piece>
      pieces_;  // pieces of the save in progress; their data is in memory_ or shared with training
  Snapshot snapshot_;
  CopyOnWriteState lent_;
  SaveCache kept_;
  std::thread thread_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_ = false, committed_ = false;
  std::chrono::duration<double> held_{0};
  double held_for_others_ = 0;
  double own_ = 0;  // seconds this rank has worked on the save in progress; written by thread_
};

}  // namespace lockstep::checkpoint
