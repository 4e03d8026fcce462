// Offers and reads of a collective on the shared board.
#include "comm/shared_parts.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "base/format.h"

namespace lockstep::comm {
namespace {

constexpr size_t kCopyBlock = size_t{64} << 10;  // number of bytes that are read and reduced at a
                                                 // time
constexpr uint64_t kSizeMask = (uint64_t{1} << 40) - 1;
constexpr std::array<const char*, 7> kVerbs{
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send", "sum"};

std::string described(uint64_t signature) {
  return fmt::format(
      "{} of {} bytes of {}",
      kVerbs.at(signature >> 56),
      signature & kSizeMask,
      c10::toString(static_cast<at::ScalarType>(signature >> 48 & 0xff)));
}

}  // namespace

uint64_t offer_key(Sequence sequence, uint64_t count) {
  return static_cast<uint64_t>(sequence) << 60 | (count & ((uint64_t{1} << 60) - 1));
}

uint64_t message_key(int to, int tag) {
  return offer_key(
      Sequence::kMessages, static_cast<uint64_t>(to) << 32 | static_cast<uint32_t>(tag));
}

uint64_t offer_signature(Verb verb, const at::Tensor& tensor, int more) {
  return static_cast<uint64_t>(verb) << 56 |
         (static_cast<uint64_t>(tensor.scalar_type()) & 0xff) << 48 |
         (static_cast<uint64_t>(more) & 0xff) << 40 | (tensor.nbytes() & kSizeMask);
}

SharedParts::SharedParts(int rank, int size, at::Tensor offered, uint64_t key, uint64_t signature)
    : rank_(rank),
      everyone_else_((size == 64 ? ~uint64_t{0} : rank_bit(size) - 1) & ~rank_bit(rank)),
      offered_(std::move(offered)),
      key_(key),
      signature_(signature),
      offers_(static_cast<size_t>(size)) {}

void SharedParts::announce(SharedBoard& board) {
  if (mine_ == nullptr) {
    mine_ = board.offer(key_, signature_, offered_.data_ptr(), offered_.nbytes());
    if (mine_ != nullptr) {
      board.ring_peers();
    }
  }
}

Offer* SharedParts::find(SharedBoard& board, int peer) {
  Offer*& offer = offers_[static_cast<size_t>(peer)];
  if (offer == nullptr) {
    offer = board.find(peer, key_);
    if (offer != nullptr && offer->signature != signature_) {
      throw std::runtime_error(fmt::format(
          "ranks called different operations: {} here, {} on rank {} of the group",
          described(signature_),
          described(offer->signature),
          peer));
    }
  }
  return offer;
}

bool SharedParts::find_all(SharedBoard& board) {
  bool all = true;
  for (int peer = 0; peer < board.size(); ++peer) {
    all = (peer == rank_ || find(board, peer) != nullptr) && all;
  }
  return all;
}

void SharedParts::take(SharedBoard& board, int peer) {
  taken_ |= rank_bit(peer);
  board.take(peer, *offers_[static_cast<size_t>(peer)]);
}

void SharedParts::take_all(SharedBoard& board) {
  for (int peer = 0; peer < board.size(); ++peer) {
    if (peer != rank_) {
      take(board, peer);
    }
  }
}

bool SharedParts::ended() {
  if (missing() != 0) {
    return false;
  }
  SharedBoard::take_back(*mine_);
  return true;
}

uint64_t SharedParts::unread() const {
  return everyone_else_ & ~(mine_ == nullptr ? 0 : mine_->taken_by.load());
}

uint64_t SharedParts::awaited() const {
  uint64_t not_found = 0;
  for (size_t peer = 0; peer < offers_.size(); ++peer) {
    not_found |= offers_[peer] == nullptr ? rank_bit(static_cast<int>(peer)) : 0;
  }
  not_found &= everyone_else_;
  return announced() && not_found != 0 ? not_found : missing();
}

void SharedParts::reduce(
    SharedBoard& board,
    Reduce how,
    uint64_t begin,
    uint64_t bytes,
    void* out,
    const ResultReader& reader) const {
  thread_local std::vector<char> room;
  const size_t size = offers_.size();
  room.resize(size * kCopyBlock);
  std::vector<const void*> parts(size);
  const at::ScalarType type = offered_.scalar_type();
  for (uint64_t at = 0; at < bytes; at += kCopyBlock) {
    const size_t count = std::min<uint64_t>(kCopyBlock, bytes - at);
    for (size_t r = 0; r < size; ++r) {
      if (static_cast<int>(r) == rank_) {
        parts[r] = static_cast<const char*>(offered_.data_ptr()) + begin + at;
      } else {
        char* block = room.data() + r * kCopyBlock;
        read(board, static_cast<int>(r), begin + at, count, block);
        parts[r] = block;
      }
    }
    const auto n = static_cast<int64_t>(count / offered_.element_size());
    reduce_parts(type, how, parts, n, static_cast<char*>(out) + at);
    if (reader) {
      const auto first = static_cast<int64_t>(at / offered_.element_size());
      reader(first, first + n);
    }
  }
}

void SharedParts::read(
    SharedBoard& board, int peer, uint64_t begin, uint64_t bytes, void* into) const {
  const Offer& offer = *offers_[static_cast<size_t>(peer)];
  board.read(peer, static_cast<const char*>(offer.address) + begin, into, bytes);
}

}  // namespace lockstep::comm
