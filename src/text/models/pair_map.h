// Hash map of BPE merges: pair of ids -> rank and merged id.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::text {

class PairMap {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  explicit PairMap(size_t count = 0) : slots_(std::bit_ceil(count * 2 + 2)) {
    shift_ = 64 - std::countr_zero(slots_.size());
  }

  /// Inserts a merge or replaces the merge of the same pair. At most `count` distinct pairs can be
  /// inserted.
  void insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    size_t slot = home_of(key);
    while (slots_[slot].key != kEmpty && slots_[slot].key != key) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    slots_[slot] = {key, merge};
  }

  /// Returns the merge of a pair, or null if there is none.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    size_t slot = home_of(key);
    while (slots_[slot].key != key) {
      if (slots_[slot].key == kEmpty) {
        return nullptr;
      }
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return &slots_[slot].merge;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // not a valid key: ids are non-negative
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t home_of(uint64_t key) const {
    return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15ULL >> shift_);
  }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace lockstep::text
