// Per-thread cache of encoded pieces. Natural text repeats words, so almost every piece is a hit.
// Short pieces with few ids are stored in a table with one cache line per bucket, longer pieces in
// a map.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::text {

class PieceCache {
 public:
  static constexpr size_t kShortPiece = 15;  // bytes
  static constexpr size_t kShortIds = 3;
  static constexpr size_t kLongPiece = 255;  // longer pieces are not cached

  /// Bytes of a short piece, padded with zeros, and its length in the last byte.
  struct Key {
    uint64_t low, high;
    bool operator==(const Key&) const = default;
  };
  /// Packs a piece of 1 to kShortPiece bytes. May read memory up to `readable_end`.
  static Key key_of(std::string_view piece, const char* readable_end);

  struct alignas(32) Entry {
    Key key{0, 0};  // zero: empty entry; no valid key is zero
    int32_t ids[kShortIds] = {};
    uint32_t count = 0;
  };

  PieceCache() : buckets_(kBuckets) {}

  /// Returns the entry of a piece, or null if it is not cached.
  const Entry* find(const Key& key) {
    Bucket& bucket = buckets_[bucket_of(key)];
    if (bucket.entries[0].key == key) {
      return &bucket.entries[0];
    }
    if (bucket.entries[1].key == key) {
      std::swap(bucket.entries[0], bucket.entries[1]);
      return &bucket.entries[0];
    }
    return nullptr;
  }
  /// Inserts a piece with at most kShortIds ids. Evicts the older piece of the bucket.
  void insert(const Key& key, std::span<const int32_t> ids);

  const std::vector<int32_t>* find_long(std::string_view piece) const;
  /// Inserts a long piece. Does nothing if it exceeds kLongPiece bytes.
  void insert_long(std::string_view piece, std::span<const int32_t> ids);

 private:
  static constexpr int kBucketBits = 14;
  static constexpr size_t kBuckets = size_t{1}
                                     << kBucketBits;  // 1 MiB, about the size of a core's L2 cache
  static constexpr size_t kMostLong = 1 << 14;
  struct alignas(64) Bucket {
    Entry entries[2];
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  static size_t bucket_of(const Key& key) {
    const uint64_t mixed = (key.low ^ (key.high << 29 | key.high >> 35)) * 0x9E3779B97F4A7C15ULL;
    return static_cast<size_t>((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93ULL >> (64 - kBucketBits));
  }

  std::vector<Bucket> buckets_;
  std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> long_pieces_;
};

inline PieceCache::Key PieceCache::key_of(std::string_view piece, const char* readable_end) {
  Key key{0, 0};
  const auto length = static_cast<uint64_t>(piece.size());
  if (readable_end - piece.data() >= 16) {
    std::memcpy(&key, piece.data(), sizeof(key));
    const uint64_t ones = ~uint64_t{0};
    if (length <= 8) {
      key.low &= ones >> (64 - 8 * length);
      key.high = 0;
    } else {
      key.high &= ones >> (128 - 8 * length);
    }
  } else {
    std::memcpy(&key, piece.data(), piece.size());
  }
  key.high |= length << 56;
  return key;
}

}  // namespace lockstep::text
