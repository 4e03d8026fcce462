// Shared-memory board for the ranks of one node. Each rank posts an offer for every operation that
// it starts, and its peers read the offered tensors directly from its memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/store.h"

namespace lockstep::comm {

/// An operation that a rank has started, for its peers to read. The slot is free if `key` is 0. The
/// other fields are valid from the time `key` is set until the rank withdraws the offer.
struct Offer {
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> taken_by;  // one bit per rank that has finished reading
  std::atomic<uint32_t> stage;     // all-reduce: 1 when this rank has reduced its slice
  uint64_t signature;              // describes the operation; must be equal on all ranks of the
                                   // group
  uint64_t order;                  // sequence number of the rank's offers
  const void* address;             // in the address space of the offering rank
  uint64_t bytes;
};

/// Thrown if the memory of a rank that has left is needed.
struct PeerLeft : std::runtime_error {
  explicit PeerLeft(int rank) : std::runtime_error("a rank has ended"), peer(rank) {}
  int peer;
};

class SharedBoard {
 public:
  static constexpr int kMostRanks = 64;  // Offer::taken_by has one bit per rank

  /// Joins the board. Must be called on every rank of the group; blocks until all ranks have
  /// called. Returns null on all ranks if they are not on one node or cannot read each other's
  /// memory. Uses keys in the store that start with "board/".
  static std::unique_ptr<SharedBoard> join(const Store& store, int rank, int size);
  /// Leaves the board. Operations of peers that still need this rank fail. The offered memory may
  /// be freed afterwards.
  ~SharedBoard();
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Posts an offer. Returns null if all slots are in use; slots become free when peers take
  /// offers. Only one thread may call this at a time.
  Offer* offer(uint64_t key, uint64_t signature, const void* address, uint64_t bytes);
  /// Starts a pass over the pending operations. Offers are posted in order: if one of them finds no
  /// free slot, all later ones of the pass also fail.
  void begin_offers() { full_ = false; }
  static void take_back(Offer& offer) { offer.key.store(0, std::memory_order_release); }
  /// Returns the earliest offer of a peer with this key that this rank has not taken; null if there
  /// is none.
  Offer* find(int peer, uint64_t key) const;
  void take(int peer, Offer& offer);

  /// Copies memory of a peer. Throws PeerLeft, or std::runtime_error if the memory cannot be read.
  void read(int peer, const void* from, void* into, size_t bytes) const;
  /// Returns true if the peer is in this process. Its memory may then be read through pointers
  /// between guard() and release().
  bool is_here(int peer) const;
  void guard(int peer) const;
  void release(int peer) const;

  enum class Sleeper : uint32_t { kWaiter = 1, kBackground = 2 };
  /// Returns the wake-up counter of this rank, which peers and this rank increment.
  uint32_t bell() const;
  void ring(int rank) const;
  void ring_peers() const;
  /// Sleeps until the wake-up counter differs from `heard`. Returns false on timeout.
  bool sleep(uint32_t heard, Sleeper sleeper, std::chrono::milliseconds most) const;
  /// Registers or unregisters a waiting thread. The background thread is not woken while a waiting
  /// thread is registered.
  void attend(bool begins) const;
  bool attended() const;

  /// Publishes the world rank for which this rank waits (kNobody: none), and whether that wait
  /// timed out.
  static constexpr int kNobody = -1;
  void set_wait(int world_rank, bool gave_up) const;
  int waits_for(int peer) const;
  bool gave_up(int peer) const;

  /// Returns the ranks that have left, one bit per rank. If `processes` is true, includes ranks
  /// whose process has died.
  uint64_t lost(bool processes) const;

 private:
  struct Place;
  SharedBoard(int rank, int size) : rank_(rank), size_(size) {}
  bool map(int descriptor);
  Offer* look(int peer, uint64_t key) const;
  bool can_read_peers() const;

  int rank_, size_;
  std::shared_ptr<void> memory_;  // mapped shared memory
  Place* places_ = nullptr;       // one per rank, in memory_
  size_t bytes_ = 0;
  uint64_t offered_ = 0;
  bool full_ = false;                     // an offer has found no free slot since begin_offers()
  std::vector<int> processes_;            // PID of each rank
  std::vector<int> process_descriptors_;  // pidfd of each rank; -1 for this process
};

}  // namespace lockstep::comm
