// State of a collective in which all ranks offer one tensor on the board and read their peers'
// tensors.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/shared_board.h"
#include "comm/sums.h"

namespace lockstep::comm {

inline uint64_t rank_bit(int rank) {
  return uint64_t{1} << rank;
}

/// Classes of operations. The order within a class is the same on all ranks; the order between
/// classes may differ by rank.
enum class Sequence : uint64_t { kGathers = 1, kReductions, kOthers, kMessages };
/// Returns the key of an offer, which is equal on all ranks.
uint64_t offer_key(Sequence sequence, uint64_t count);
uint64_t message_key(int to, int tag);

enum class Verb : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kSend,
  kSumByAll
};
/// Packs the properties of an operation that must be equal on all ranks. `more` is the root or the
/// reduction.
uint64_t offer_signature(Verb verb, const at::Tensor& tensor, int more = 0);

class SharedParts {
 public:
  SharedParts(int rank, int size, at::Tensor offered, uint64_t key, uint64_t signature);

  /// Posts this rank's offer if a slot is free.
  void announce(SharedBoard& board);
  bool announced() const { return mine_ != nullptr; }
  /// Returns the offer of a peer; null if it has not posted one. Throws std::runtime_error if the
  /// offer belongs to another operation.
  Offer* find(SharedBoard& board, int peer);
  bool find_all(SharedBoard& board);
  bool took(int peer) const { return (taken_ & rank_bit(peer)) != 0; }
  /// Marks the tensor of a peer as no longer needed.
  void take(SharedBoard& board, int peer);
  void take_all(SharedBoard& board);
  Offer& mine() { return *mine_; }
  const at::Tensor& offered() const { return offered_; }
  /// Returns true when this rank has read all peers and all peers have read this rank, and then
  /// withdraws the offer.
  bool ended();
  uint64_t missing() const { return unread() | (everyone_else_ & ~taken_); }
  /// Returns the ranks that have not read this rank's tensor.
  uint64_t unread() const;
  /// Returns the ranks whose offers have not been found or, if all were found, the missing ranks.
  uint64_t awaited() const;

  /// Reduces the bytes [begin, begin + bytes) of all ranks' tensors in rank order into `out`, which
  /// may be part of this rank's tensor. All offers must have been found. `reader`, if set, receives
  /// the elements of `out`.
  void reduce(
      SharedBoard& board,
      Reduce how,
      uint64_t begin,
      uint64_t bytes,
      void* out,
      const ResultReader& reader) const;
  /// Copies a byte range of the tensor of a peer.
  void read(SharedBoard& board, int peer, uint64_t begin, uint64_t bytes, void* into) const;

 private:
  int rank_;
  uint64_t everyone_else_;
  at::Tensor offered_;
  uint64_t key_, signature_;
  Offer* mine_ = nullptr;
  std::vector<Offer*> offers_;  // one per rank
  uint64_t taken_ = 0;
};

}  // namespace lockstep::comm
