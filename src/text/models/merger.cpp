// Implements BPE merging: a linear scan for short words, a heap over a linked list for long ones.
#include "text/models/merger.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace lockstep::text {
namespace {

constexpr size_t kShort = 48;  // symbols; a scan is faster than a heap up to about this length
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr int32_t kGone = -1;  // marks a symbol that was merged into its left neighbor

}  // namespace

void Merger::merge(
    const PairMap& merges, const std::vector<int32_t>& ids_by_rank, std::vector<int32_t>& symbols) {
  if (symbols.size() <= kShort) {
    merge_short(merges, symbols);
  } else {
    merge_long(merges, ids_by_rank, symbols);
  }
}

void Merger::merge_short(const PairMap& merges, std::vector<int32_t>& symbols) {
  constexpr PairMap::Merge kNoMerge{kNone, kGone};
  const auto lookup = [&](size_t left) {
    const PairMap::Merge* found = merges.find(symbols[left], symbols[left + 1]);
    return found == nullptr ? kNoMerge : *found;
  };
  if (symbols.size() < 2) {
    return;
  }
  short_merges_.resize(symbols.size() - 1);
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    short_merges_[i] = lookup(i);
  }
  while (!short_merges_.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < short_merges_.size(); ++i) {
      if (short_merges_[i].rank < short_merges_[best].rank) {
        best = i;
      }
    }
    if (short_merges_[best].rank == kNone) {
      return;
    }
    symbols[best] = short_merges_[best].id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    short_merges_.erase(short_merges_.begin() + static_cast<std::ptrdiff_t>(best));
    if (best < short_merges_.size()) {
      short_merges_[best] = lookup(best);
    }
    if (best > 0) {
      short_merges_[best - 1] = lookup(best - 1);
    }
  }
}

void Merger::push(const PairMap& merges, const std::vector<int32_t>& symbols, uint32_t left) {
  const PairMap::Merge* found = merges.find(symbols[left], symbols[links_[left].next]);
  if (found != nullptr) {
    candidates_.push_back(static_cast<uint64_t>(found->rank) << 32 | left);
    std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
  }
}

void Merger::merge_long(
    const PairMap& merges, const std::vector<int32_t>& ids_by_rank, std::vector<int32_t>& symbols) {
  const auto count = static_cast<uint32_t>(symbols.size());
  links_.resize(count);
  candidates_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    links_[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
    if (i + 1 < count) {
      if (const PairMap::Merge* found = merges.find(symbols[i], symbols[i + 1])) {
        candidates_.push_back(static_cast<uint64_t>(found->rank) << 32 | i);
      }
    }
  }
  std::make_heap(candidates_.begin(), candidates_.end(), std::greater<>());
  while (!candidates_.empty()) {
    const uint64_t top = candidates_.front();
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    candidates_.pop_back();
    const auto left = static_cast<uint32_t>(top);
    const int32_t id = ids_by_rank[top >> 32];
    const uint32_t right = links_[left].next;
    if (symbols[left] == kGone || right == kNone) {
      continue;
    }
    const PairMap::Merge* found = merges.find(symbols[left], symbols[right]);
    if (found == nullptr || found->id != id) {
      continue;  // stale: one of the symbols has changed
    }
    symbols[left] = id;
    symbols[right] = kGone;
    links_[left].next = links_[right].next;
    if (links_[left].next != kNone) {
      links_[links_[left].next].previous = left;
      push(merges, symbols, left);
    }
    if (links_[left].previous != kNone) {
      push(merges, symbols, links_[left].previous);
    }
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kGone), symbols.end());
}

}  // namespace lockstep::text
