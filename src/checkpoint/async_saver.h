// Saving in the background: training waits for a copy in memory, and not for the disk.
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
#include "checkpoint/snapshot.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// One saver a rank. Every method is called by all ranks, in the same order, from the training
/// thread.
///
/// It holds a copy of this rank's pieces in host memory from the first save on (for AdamW with
/// float32 masters: 14 bytes for each parameter that this rank writes); of pieces on a GPU in
/// pinned memory, to which they are copied beside what it computes.
class AsyncSaver {
 public:
  /// `communicator` is the saver's own group: its thread uses it while training uses others.
  explicit AsyncSaver(comm::Communicator communicator);
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  /// Waits for a save that is under way. A failure that nobody has waited for becomes a line in the
  /// log.
  ~AsyncSaver();

  /// Waits for the save before (throws what that threw), copies the pieces, of a GPU begins to, and
  /// returns; save_checkpoint then runs on a thread. `then` runs there once the checkpoint is
  /// committed, on every rank: rank 0 rotates in it.
  void save(
      const std::filesystem::path& folder,
      std::span<const Piece> pieces,
      std::string state,
      SmallFiles files,
      SaveOptions options = {},
      std::function<void()> then = {});

  /// As Snapshot::let_write, of the last save's pieces: to be called before a GPU is given what
  /// writes to them.
  void let_write() { snapshot_.let_write(); }

  /// Blocks until the last save has ended; throws what it threw, once.
  void wait();

  /// Whether a save has failed that nobody has waited for. The others' may be about to.
  bool failed() const { return failed_; }

  /// How long the training thread has been held by save() and wait().
  double seconds_held() const { return held_.count(); }
  /// Of these, those that it was held for other ranks' writing, not its own.
  double seconds_held_for_others() const { return held_for_others_; }

 private:
  void copy(std::span<const Piece> pieces);

  comm::Communicator communicator_;
  at::Tensor memory_;          // kept from save to save, so that it is faulted in once
  std::vector<Piece> copies_;  // their data lie in it
  Snapshot snapshot_;
  std::thread thread_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_ = false;
  std::chrono::duration<double> held_{0};
  double held_for_others_ = 0;
  double own_ = 0;  // seconds of the save under way that this rank worked on it; of thread_
};

}  // namespace lockstep::checkpoint
