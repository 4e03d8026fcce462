// Byte-pair merging (Sennrich, Haddow and Birch, 2016). Repeatedly merges the adjacent pair with
// the lowest rank; ties are merged from left to right. Short words use a scan, long ones a heap
// over a linked list: O(n log n).
#pragma once

#include <cstdint>
#include <vector>

#include "text/models/pair_map.h"

namespace lockstep::text {

/// Per-thread working memory.
class Merger {
 public:
  /// Merges `symbols` in place until no adjacent pair can be merged. A merge with a given rank
  /// produces ids_by_rank[rank].
  void merge(
      const PairMap& merges,
      const std::vector<int32_t>& ids_by_rank,
      std::vector<int32_t>& symbols);

 private:
  void merge_short(const PairMap& merges, std::vector<int32_t>& symbols);
  void merge_long(
      const PairMap& merges,
      const std::vector<int32_t>& ids_by_rank,
      std::vector<int32_t>& symbols);
  void push(const PairMap& merges, const std::vector<int32_t>& symbols, uint32_t left);

  struct Link {
    uint32_t previous, next;
  };
  std::vector<uint64_t> candidates_;  // min-heap of rank << 32 | index of the left symbol
  std::vector<Link> links_;
  std::vector<PairMap::Merge> short_merges_;
};

}  // namespace lockstep::text
