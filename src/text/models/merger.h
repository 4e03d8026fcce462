// Byte-pair merging (Sennrich, Haddow and Birch, 2016): while any two neighbours merge, the pair of
// lowest rank does, the leftmost first among equals. Short words by scanning, long ones by a heap
// over a linked list: O(n log n).
#pragma once

#include <cstdint>
#include <vector>

#include "text/models/pair_map.h"

namespace lockstep::text {

/// The working memory of one thread.
class Merger {
 public:
  /// Merges `symbols` in place until no neighbours merge. ids_by_rank[rank] is what that merge
  /// makes.
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
  std::vector<uint64_t>
      candidates_;  // rank << 32 | place of the left symbol: a heap, the smallest on top
  std::vector<Link> links_;
  std::vector<PairMap::Merge> short_merges_;
};

}  // namespace lockstep::text
