// What the ranks of one machine see of one another: a board in memory that all of them map, on
// which each offers what it has begun, and the contents of each other's tensors, which are read
// where they lie.
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

/// What a rank has begun, for its peers to read. Free where key is 0; the other fields hold from
/// the moment that the key is there until the rank takes the offer back.
struct Offer {
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> taken_by;  // a bit a rank: it has read all that it will
  std::atomic<uint32_t> stage;     // of an all-reduce: 1, this rank's slice is summed
  uint64_t signature;              // what it is, to be the same on all ranks
  uint64_t order;                  // among the offers of its rank
  const void* address;             // in the memory of its rank
  uint64_t bytes;
};

/// A peer's memory is wanted, and it has left.
struct PeerLeft : std::runtime_error {
  explicit PeerLeft(int rank) : std::runtime_error("a rank has ended"), peer(rank) {}
  int peer;
};

class SharedBoard {
 public:
  static constexpr int kMostRanks = 64;  // bits of Offer::taken_by

  /// Every rank of the group must call; blocks until all have. Null on all of them where they are
  /// not of one machine, or may not read each other's memory. What is on the store begins with
  /// "board/".
  static std::unique_ptr<SharedBoard> join(const Store& store, int rank, int size);
  /// Leaves: peers that still want something of this rank fail. What was offered may be freed
  /// afterwards.
  ~SharedBoard();
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Null where there is no room: a peer that takes something makes some. By one thread at a time.
  Offer* offer(uint64_t key, uint64_t signature, const void* address, uint64_t bytes);
  /// Offers are made in order: one that found no room holds up all behind it, until the owner has
  /// begun anew with the first.
  void begin_offers() { full_ = false; }
  static void take_back(Offer& offer) { offer.key.store(0, std::memory_order_release); }
  /// The earliest offer of a peer under the key that this rank has not taken; null where there is
  /// none.
  Offer* find(int peer, uint64_t key) const;
  void take(int peer, Offer& offer);

  /// A peer's memory, copied. Throws PeerLeft, or std::runtime_error where it cannot be read.
  void read(int peer, const void* from, void* into, size_t bytes) const;
  /// Whether a peer's memory is this process's, to be read through pointers between guard() and
  /// release().
  bool is_here(int peer) const;
  void guard(int peer) const;
  void release(int peer) const;

  enum class Sleeper : uint32_t { kWaiter = 1, kBackground = 2 };
  /// Rung by peers for this rank, and by itself.
  uint32_t bell() const;
  void ring(int rank) const;
  void ring_peers() const;
  /// Until the bell differs from `heard`, or the time is over (false).
  bool sleep(uint32_t heard, Sleeper sleeper, std::chrono::milliseconds most) const;
  /// While one attends, the background is left asleep.
  void attend(bool begins) const;
  bool attended() const;

  /// Says for which rank of the world this one waits, and whether in vain; none: kNobody.
  static constexpr int kNobody = -1;
  void set_wait(int world_rank, bool gave_up) const;
  int waits_for(int peer) const;
  bool gave_up(int peer) const;

  /// Ranks that have left, a bit a rank; with `processes`, those whose process is no more as well.
  uint64_t lost(bool processes) const;

 private:
  struct Place;
  SharedBoard(int rank, int size) : rank_(rank), size_(size) {}
  bool map(int descriptor);
  Offer* look(int peer, uint64_t key) const;
  bool can_read_peers() const;

  int rank_, size_;
  std::shared_ptr<void> memory_;  // mapped
  Place* places_ = nullptr;       // one a rank, in it
  size_t bytes_ = 0;
  uint64_t offered_ = 0;
  bool full_ = false;                     // an offer found no room since begin_offers
  std::vector<int> processes_;            // a rank
  std::vector<int> process_descriptors_;  // a rank; -1 where it is this process
};

}  // namespace lockstep::comm
