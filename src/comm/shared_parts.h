// A collective in which every rank offers one of its tensors on the board and reads the others'.
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

/// Gathers keep their order and reductions theirs, but not always one among the other.
enum class Sequence : uint64_t { kGathers = 1, kReductions, kOthers, kMessages };
/// What an offer stands under: the same on all ranks.
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
/// What is to be the same on all ranks, packed. `more`: the root, or how to reduce.
uint64_t offer_signature(Verb verb, const at::Tensor& tensor, int more = 0);

class SharedParts {
 public:
  SharedParts(int rank, int size, at::Tensor offered, uint64_t key, uint64_t signature);

  /// Offers this rank's tensor, once there is room.
  void announce(SharedBoard& board);
  bool announced() const { return mine_ != nullptr; }
  /// A peer's offer; null while there is none. Throws std::runtime_error where it is of something
  /// else.
  Offer* find(SharedBoard& board, int peer);
  bool find_all(SharedBoard& board);
  bool took(int peer) const { return (taken_ & rank_bit(peer)) != 0; }
  /// Says that a peer's tensor, found before, is not needed any more.
  void take(SharedBoard& board, int peer);
  void take_all(SharedBoard& board);
  Offer& mine() { return *mine_; }
  const at::Tensor& offered() const { return offered_; }
  /// Whether this rank has what it wants and has been read by all; takes the offer back.
  bool ended();
  uint64_t missing() const { return unread() | (everyone_else_ & ~taken_); }
  /// Ranks that have not read this one's part.
  uint64_t unread() const;
  /// Ranks that have not come: whose offer has not been found. Where all have, those missing.
  uint64_t awaited() const;

  /// Bytes [begin, begin + bytes) of every rank's tensor, reduced in rank order into `out`, which
  /// may be this rank's own. All have been found. `reader`, which may be empty, is told of elements
  /// of `out`.
  void reduce(
      SharedBoard& board,
      Reduce how,
      uint64_t begin,
      uint64_t bytes,
      void* out,
      const ResultReader& reader) const;
  /// Those of one peer's, copied.
  void read(SharedBoard& board, int peer, uint64_t begin, uint64_t bytes, void* into) const;

 private:
  int rank_;
  uint64_t everyone_else_;
  at::Tensor offered_;
  uint64_t key_, signature_;
  Offer* mine_ = nullptr;
  std::vector<Offer*> offers_;  // a rank
  uint64_t taken_ = 0;
};

}  // namespace lockstep::comm
