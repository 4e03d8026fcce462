// Implements a per-thread cache from pieces of text to token ids.
#include "text/models/piece_cache.h"

#include <algorithm>
#include <utility>

namespace lockstep::text {

void PieceCache::insert(const Key& key, std::span<const int32_t> ids) {
  Bucket& bucket = buckets_[bucket_of(key)];
  bucket.entries[1] = bucket.entries[0];
  Entry& entry = bucket.entries[0];
  entry.key = key;
  entry.count = static_cast<uint32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), entry.ids);
}

const std::vector<int32_t>* PieceCache::find_long(std::string_view piece) const {
  const auto found = long_pieces_.find(piece);
  return found == long_pieces_.end() ? nullptr : &found->second;
}

void PieceCache::insert_long(std::string_view piece, std::span<const int32_t> ids) {
  if (piece.size() > kLongPiece) {
    return;
  }
  if (long_pieces_.size() >= kMostLong) {
    long_pieces_.clear();
  }
  long_pieces_.emplace(piece, std::vector<int32_t>(ids.begin(), ids.end()));
}

}  // namespace lockstep::text
