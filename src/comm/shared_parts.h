// State of a collective in which every rank offers one tensor on the board and reads the peers'
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

/// Gathers are ordered among themselves, and so are reductions, but the order between the two may
/// differ by rank.
enum class Sequence : uint64_t { kGathers = 1, kReductions, kOthers, kMessages };
/// Key of an offer; equal on all ranks.
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
/// Packs the properties that must be equal on all ranks. `more` is the root or the reduction.
uint64_t offer_signature(Verb verb, const at::Tensor& tensor, int more = 0);

class SharedParts {
 public:
  SharedParts(int rank, int size, at::Tensor offered, uint64_t key, uint64_t signature);

  /// Posts this rank's offer if a slot is free.
  void announce(SharedBoard& board);
  bool announced() const { return mine_ != nullptr; }
  /// Returns a peer's offer; null if there is none yet. Throws std::runtime_error if it belongs to
  /// another operation.
  Offer* find(SharedBoard& board, int peer);
  bool find_all(SharedBoard& board);
  bool took(int peer) const { return (taken_ & rank_bit(peer)) != 0; }
  /// Marks a peer's tensor as no longer needed.
  void take(SharedBoard& board, int peer);
  void take_all(SharedBoard& board);
  Offer& mine() { return *mine_; }
  const at::Tensor& offered() const { return offered_; }
  /// Returns true when this rank has read all peers and all peers have read this rank; then
  /// withdraws the offer.
  bool ended();
  uint64_t missing() const { return unread() | (everyone_else_ & ~taken_); }
  /// Returns the ranks that have not read this rank's tensor.
  uint64_t unread() const;
  /// Returns the ranks whose offer has not been found; if all were found, the missing ranks.
  uint64_t awaited() const;

  /// Reduces bytes [begin, begin + bytes) of every rank's tensor in rank order into `out`, which
  /// may be this rank's own. All offers must have been found. `reader`, if set, receives the
  /// elements of `out`.
  void reduce(
      SharedBoard& board,
      Reduce how,
      uint64_t begin,
      uint64_t bytes,
      void* out,
      const ResultReader& reader) const;
  /// Copies a byte range of one peer's tensor.
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
