// In-memory checkpoint. The state of the last step is stored in memory that outlives the ranks
// (base/persistent_memory.h), with a replica on the next node. Restarted ranks resume from it.
//
// A part of the memory contains one state of a rank, or replicas of several states:
//
//   header, data of the pieces, description          written in place; the header last
//
// There are two parts of each kind. Each new state overwrites the older one, so the last state
// remains complete until all ranks have the next one.
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

/// Identifies the ranks that write a state together. A state is only used if all ranks of its round
/// have written it.
struct InMemoryRound {
  std::string job;
  int term = 0, number = 0;  // term of the job's coordinator, and number of the round in this term
};

/// Mapped part of the memory. It is pinned if there is a GPU. Move-only.
class InMemoryPart {
 public:
  InMemoryPart() = default;
  /// `index` is the number of the part in `memory`. -1 if `memory` is -1.
  InMemoryPart(int memory, int index) : memory_(memory), index_(index) {}
  InMemoryPart(InMemoryPart&& other) noexcept;
  InMemoryPart& operator=(InMemoryPart&& other) noexcept;
  ~InMemoryPart();

  /// Grows the part to at least `bytes`. Its content may be lost. Throws Error (environment) if the
  /// machine does not have enough memory.
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

/// In-memory checkpoint of one rank. All methods must be called on every rank, in the same order,
/// on the training thread.
class InMemoryCheckpoint {
 public:
  /// `memory` contains this rank's state and replicas of the state of another node. `machine` is
  /// the number of this rank's node. `communicator` must be a separate group for host memory,
  /// because the background thread uses it while training uses other groups.
  InMemoryCheckpoint(comm::Communicator communicator, int memory, InMemoryRound round, int machine);
  InMemoryCheckpoint(const InMemoryCheckpoint&) = delete;
  InMemoryCheckpoint& operator=(const InMemoryCheckpoint&) = delete;
  /// Waits for operations in progress.
  ~InMemoryCheckpoint();

  /// Returns true if the ranks are on several nodes. Replicas are only sent in this case.
  bool has_neighbours() const { return machines_.size() > 1; }
  /// Returns the number of bytes of this node's memory that a rank needs for pieces of `bytes`
  /// bytes.
  int64_t filled_by(int64_t bytes) const { return bytes * (has_neighbours() ? 4 : 2); }

  /// Waits for the replicas of the previous state and rethrows failures. Copies the pieces (for GPU
  /// pieces, only starts the copy) and returns. A background thread sends the replica. `about` is
  /// stored on rank 0.
  void keep(int64_t step, std::span<const Piece> pieces, const std::string& about);
  /// Calls Snapshot::before_state_update() for the pieces of the last state.
  void before_state_update() { snapshot_.before_state_update(); }
  void wait();

 private:
  void send_copies(InMemoryPart& own, InMemoryPart& copies);

  comm::Communicator communicator_;
  InMemoryRound round_;
  std::vector<std::vector<int>> machines_;  // ranks of each node
  int sends_to_ = -1;
  std::vector<int> receives_from_;
  std::array<InMemoryPart, kPersistentParts / 2> own_, copies_;
  size_t next_ = 0;
  Snapshot snapshot_;
  std::thread thread_;
  std::exception_ptr failure_;
};

/// State that is complete on all ranks together.
struct InMemoryStep {
  int64_t step = 0;
  std::string about;          // set on every rank
  std::vector<Piece> pieces;  // pieces of this rank; their data is a view of the memory
};

/// Returns the newest complete state that an earlier round of the job left in the memories of the
/// current ranks, or nullopt if there is none. Must be called on every rank.
std::optional<InMemoryStep> find_in_memory_step(
    int memory, const std::string& job, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
