// In-memory checkpoint: the state of the last step in memory that outlives the ranks
// (base/persistent_memory.h), with a replica on the next node. A restarted rank resumes from it.
//
// A part of the memory contains one state of a rank, or replicas of several states:
//
//   header, data of the pieces, description          written in place; the header last
//
// There are two parts of each kind, and each new state overwrites the older of the two. The last
// state is therefore complete until all ranks have the next one.
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

/// Identifies the ranks that write a state together: a state is used only if all ranks of its round
/// have written it.
struct InMemoryRound {
  std::string job;
  int term = 0, number = 0;  // term of the job's coordinator, and number of the round in that term
};

/// A mapped range of the memory, pinned if there is a GPU. Move-only.
class InMemoryPart {
 public:
  InMemoryPart() = default;
  /// `index` selects the part of the memory; -1 if `memory` is -1.
  InMemoryPart(int memory, int index) : memory_(memory), index_(index) {}
  InMemoryPart(InMemoryPart&& other) noexcept;
  InMemoryPart& operator=(InMemoryPart&& other) noexcept;
  ~InMemoryPart();

  /// Grows the part to at least `bytes`; its content may be lost. Throws Error (environment) if the
  /// machine has too little memory.
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

/// In-memory checkpoint of one rank. All ranks call every method in the same order from the
/// training thread.
class InMemoryCheckpoint {
 public:
  /// `memory` belongs to this rank and contains its state and the replicas of another node's state.
  /// `machine` is the number of this rank's node. `communicator` is a separate group for host
  /// memory; the background thread uses it while training uses other groups.
  InMemoryCheckpoint(comm::Communicator communicator, int memory, InMemoryRound round, int machine);
  InMemoryCheckpoint(const InMemoryCheckpoint&) = delete;
  InMemoryCheckpoint& operator=(const InMemoryCheckpoint&) = delete;
  /// Waits for operations in progress.
  ~InMemoryCheckpoint();

  /// True if the ranks are on several machines; replicas are sent only then.
  bool has_neighbours() const { return machines_.size() > 1; }
  /// Returns the bytes of this machine's memory that a rank uses for pieces of `bytes` bytes.
  int64_t filled_by(int64_t bytes) const { return bytes * (has_neighbours() ? 4 : 2); }

  /// Waits for the replicas of the previous state (rethrowing failures), copies the pieces (for GPU
  /// pieces, starts the copy), and returns. A background thread sends the replica. `about` is
  /// stored on rank 0.
  void keep(int64_t step, std::span<const Piece> pieces, const std::string& about);
  /// Calls Snapshot::before_state_update for the pieces of the last state.
  void before_state_update() { snapshot_.before_state_update(); }
  void wait();

 private:
  void send_copies(InMemoryPart& own, InMemoryPart& copies);

  comm::Communicator communicator_;
  InMemoryRound round_;
  std::vector<std::vector<int>> machines_;  // ranks of each machine
  int sends_to_ = -1;
  std::vector<int> receives_from_;
  std::array<InMemoryPart, kPersistentParts / 2> own_, copies_;
  size_t next_ = 0;
  Snapshot snapshot_;
  std::thread thread_;
  std::exception_ptr failure_;
};

/// A state that is complete over all ranks.
struct InMemoryStep {
  int64_t step = 0;
  std::string about;          // set on every rank
  std::vector<Piece> pieces;  // this rank's part; the data is a view of the memory
};

/// Returns the newest complete state that an earlier round of the job left in the memories of the
/// current ranks; nullopt if there is none. Every rank must call.
std::optional<InMemoryStep> find_in_memory_step(
    int memory, const std::string& job, comm::Communicator& communicator);

}  // namespace lockstep::checkpoint
