// Saving in the background: training does not wait for the disk, and for a copy in memory only of
// what has not been read when it is to be written to.
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

/// One saver a rank. Every method is called by all ranks, in the same order, from the training
/// thread.
///
/// It has room for a copy of this rank's pieces in host memory from the first save on (for AdamW
/// with float32 masters: 14 bytes for each parameter that this rank writes). Pieces on a GPU are
/// copied there, pinned, beside what it computes; those on the host if before_state_update() finds
/// them unread.
class AsyncSaver {
 public:
  /// `communicator` is the saver's own group: its thread uses it while training uses others.
  explicit AsyncSaver(comm::Communicator communicator);
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  /// Waits for a save that is under way. A failure that nobody has waited for becomes a line in the
  /// log.
  ~AsyncSaver();

  /// Waits for the save before (throws what that threw), begins to copy pieces of a GPU, and
  /// returns; save_checkpoint then runs on a thread, and reads the others where they are. `then`
  /// runs there once the checkpoint is committed, on every rank: rank 0 rotates in it.
  void save(
      const std::filesystem::path& folder,
      std::span<const Piece> pieces,
      std::string state,
      SmallFiles files,
      SaveOptions options = {},
      std::function<void()> then = {});

  /// To be called before the last save's pieces are written to, or a GPU is given what does.
  void before_state_update();

  /// Blocks until the last save has ended; throws what it threw, once.
  void wait();

  /// Whether a save has failed that nobody has waited for. The others' may be about to.
  bool failed() const { return failed_; }

  /// How long the training thread has been held by save() and wait().
  double seconds_held() const { return held_.count(); }
  /// Of these, those that it was held for other ranks' writing, not its own.
  double seconds_held_for_others() const { return held_for_others_; }

 private:
  void lend(std::span<const Piece> pieces);

  comm::Communicator communicator_;
  at::Tensor memory_;          // kept from save to save, so that it is faulted in once
  std::vector<Piece> pieces_;  // of the save under way, their data in it, or lent
  Snapshot snapshot_;
  CopyOnWriteState lent_;
  SaveCache kept_;
  std::thread thread_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_ = false;
  std::chrono::duration<double> held_{0};
  double held_for_others_ = 0;
  double own_ = 0;  // seconds of the save under way that this rank worked on it; of thread_
};

}  // namespace lockstep::checkpoint
