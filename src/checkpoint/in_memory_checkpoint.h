// The state after the last step in memory that outlives the ranks (base/persistent_memory.h): a
// rank's own, and a copy of that of a rank of the machine before. Who is started again goes on from
// it.
//
// A part of the memory holds one state of a rank, or copies of several:
//
//   header, data of the pieces, description          written in place; the header last
//
// There are two parts of each kind, and a state is put over the one before the last: so the last
// one is whole somewhere until all ranks have the next.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/persistent_memory.h"
#include "checkpoint/pieces.h"
#include "checkpoint/snapshot.h"
#include "comm/communicator.h"

namespace lockstep::checkpoint {

/// The ranks that keep a state together: what one round left is one whole, or is not used.
struct InMemoryRound {
  std::string job;
  int term = 0, number = 0;  // of the job's host, and of the round under it
};

/// A range of the memory, mapped, and pinned where there are GPUs. Move-only.
class InMemoryPart {
 public:
  InMemoryPart() = default;
  /// `index`: which of the memory's parts; -1 as `memory` is none.
  InMemoryPart(int memory, int index) : memory_(memory), index_(index) {}
  InMemoryPart(InMemoryPart&& other) noexcept;
  InMemoryPart& operator=(InMemoryPart&& other) noexcept;
  ~InMemoryPart();

  /// Makes it so large, at least; what was in it may be gone. Error (environment) where the machine
  /// has no memory for it.
  void reserve(int64_t bytes);
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void unmap();
  int memory_ = -1, index_ = 0;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  std::shared_ptr<void> pin_;
};

/// One a rank. Every method is called by all ranks, in the same order, from the training thread.
class InMemoryCheckpoint {
 public:
  /// `memory` is this rank's, of which the machine numbered so holds a state and a copy;
  /// `communicator` is its own group, of host memory: its thread uses it while training uses
  /// others.
  InMemoryCheckpoint(comm::Communicator communicator, int memory, InMemoryRound round, int machine);
  InMemoryCheckpoint(const InMemoryCheckpoint&) = delete;
  InMemoryCheckpoint& operator=(const InMemoryCheckpoint&) = delete;
  /// Waits for what is under way.
  ~InMemoryCheckpoint();

  /// Whether the ranks are on several machines: copies are sent only then.
  bool has_neighbours() const { return machines_.size() > 1; }
  /// Of this machine's memory, that a rank with pieces of so many bytes fills if all have as many.
  int64_t filled_by(int64_t bytes) const { return bytes * (has_neighbours() ? 4 : 2); }

  /// Waits for the copies of the state before (throws what that threw), copies the pieces, of a GPU
  /// begins to, and returns; the copy for the neighbour is sent by a thread. `about` is kept on
  /// rank 0.
  void keep(int64_t step, std::span<const Piece> pieces, const std::string& about);
  /// As Snapshot::before_state_update, of the last state's pieces.
  void before_state_update() { snapshot_.before_state_update(); }
  void wait();

 private:
  void send_copies(InMemoryPart& own, InMemoryPart& copies);

  comm::Communicator communicator_;
  InMemoryRound round_;
  std::vector<std::vector<int>> machines_;  // their ranks
  int sends_to_ = -1;
  std::vector<int> receives_from_;
  std::array<InMemoryPart, kPersistentParts / 2> own_, copies_;
  size_t next_ = 0;
  Snapshot snapshot_;
  std::thread thread_;
  std::exception_ptr failure_;
};

/// A state that was found whole, over all ranks.
struct InMemoryStep {
  int64_t step = 0;
  std::string about;          // on every rank
  std::vector<Piece> pieces;  // this rank's share, in the memory itself
};

/// The newest that an earlier round of the job left in the memories of the ranks that are there
/// now; nothing where none is whole. Every rank must call.
std::optional<InMemoryStep> find_in_memory_step(
    int memory, const std::string& job, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
