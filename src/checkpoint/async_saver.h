// Saves in the background. Training does not wait for the disk, and not for copies of state that
// the saver thread has already read.
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

/// Saves checkpoints on a background thread. Each rank has one saver. All methods must be called on
/// every rank, in the same order, on the training thread.
///
/// From the first save on, the saver owns a host buffer for a copy of this rank's pieces. For AdamW
/// with float32 master weights, it has 14 bytes for each parameter that this rank writes. Pieces on
/// a GPU are copied to pinned memory while the GPU computes. Pieces on the host are only copied if
/// they have not been read when before_state_update() is called.
class AsyncSaver {
 public:
  /// The saver thread uses `communicator` while training uses other groups, so it must be a group
  /// of its own.
  explicit AsyncSaver(comm::Communicator communicator);
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  /// Waits for a save in progress. If it failed and no caller has waited for it, logs the failure.
  ~AsyncSaver();

  /// Waits for the previous save and rethrows its failure. Starts copying GPU pieces and returns.
  /// The saver thread then runs save_checkpoint, which reads host pieces in place. After the
  /// commit, it calls `then` on every rank. On rank 0, `then` removes old checkpoints.
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

  /// Returns true if this rank's background save has failed and the failure has not been rethrown
  /// yet. The saves of other ranks may fail later.
  bool failed() const { return failed_; }

  /// True if the last save has ended without a failure: the checkpoint is committed, and `then` has
  /// returned.
  bool committed() const { return committed_; }

  /// Seconds that save() and wait() have blocked the training thread.
  double seconds_held() const { return held_.count(); }
  /// Returns the part of seconds_held() that was spent waiting for writes of other ranks.
  double seconds_held_for_others() const { return held_for_others_; }

 private:
  void lend(std::span<const Piece> pieces);

  comm::Communicator communicator_;
  at::Tensor memory_;  // reused, so that its pages are faulted in only once
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
  double own_ = 0;  // seconds of work of this rank on the current save; written by thread_
};

}  // namespace lockstep::checkpoint
