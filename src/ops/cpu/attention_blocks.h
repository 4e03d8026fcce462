// Blocks of queries for the attention loops, their visible keys, and prefetching. Internal to ops;
// see tile.h.
#pragma once

#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/tile.h"

namespace lockstep::ops::kernel {
namespace {

/// Returns the mask of the sixteen keys from `first` on that are visible to a query at `position`.
inline __mmask16 seen_keys(int64_t position, int64_t window, int64_t first) {
  const int64_t until = position + 1 - first;
  const __mmask16 earlier = until <= 0 ? 0 : first_lanes(until);
  const int64_t hidden = window > 0 ? position + 1 - window - first : 0;
  return hidden <= 0 ? earlier : static_cast<__mmask16>(earlier & ~first_lanes(hidden));
}

/// Overload with an end for each key: key i is visible only to queries before `until[i]`.
inline __mmask16 seen_keys(int64_t position, int64_t window, int64_t first, const int32_t* until) {
  const __mmask16 seen = seen_keys(position, window, first);
  return until == nullptr ? seen
                          : _mm512_mask_cmpgt_epi32_mask(
                                seen,
                                _mm512_loadu_si512(until + first),
                                _mm512_set1_epi32(static_cast<int>(position)));
}

/// Returns the last key visible to a query. Queries beyond the end are treated as the last query.
inline int64_t last_seen(const AttentionSizes& s, int64_t query) {
  return s.sees_all ? s.keys - 1 : least(query, s.length - 1);
}

/// Visible keys of several queries: the keys [clear, clear_until) are visible to all of them, and
/// keys from `end` on to none.
struct SeenKeys {
  int64_t clear, clear_until, end;
};
/// Returns the visible keys of queries whose last visible keys are in [first, last]; -1: no visible
/// key.
inline SeenKeys seen_by(const AttentionSizes& s, int64_t first, int64_t last) {
  const int64_t hidden = s.window > 0 && last >= s.window ? last + 1 - s.window : 0;
  return {round_up(hidden, kLanes), (first + 1) / kLanes * kLanes, round_up(last + 1, kLanes)};
}

inline int64_t query_blocks(const AttentionSizes& s) {
  return (s.length + kPanel - 1) / kPanel;
}
/// The panels [from, until) of keys that are visible to the queries of a block.
struct SeenPanels {
  int64_t from, until;
};
inline SeenPanels seen_panels(const AttentionSizes& s, int64_t block) {
  const int64_t first = s.window > 0 ? block * kPanel + 1 - s.window : 0;
  return {first <= 0 ? 0 : first / kPanel, s.sees_all ? (s.keys + kPanel - 1) / kPanel : block + 1};
}

/// A block of 64 queries of a head. Blocks are numbered by job and, within a job, by head.
struct QueryBlock {
  int64_t batch, kv_head, head, number;
};
inline int64_t blocks_of_job(const AttentionSizes& s) {
  return s.heads / s.kv_heads * query_blocks(s);
}
inline QueryBlock block_of(const AttentionSizes& s, int64_t index) {
  const int64_t job = index / blocks_of_job(s), rest = index % blocks_of_job(s);
  const int64_t kv_head = job % s.kv_heads, first_head = kv_head * (s.heads / s.kv_heads);
  return {job / s.kv_heads, kv_head, first_head + rest / query_blocks(s), rest % query_blocks(s)};
}

/// Returns the address of element [batch, head, 0, 0] of a tensor.
template <class Value>
const Value* at(const void* data, const HeadStrides& strides, int64_t batch, int64_t head) {
  return static_cast<const Value*>(data) + batch * strides.batch + head * strides.head;
}
template <class Value>
Value* at(void* data, const HeadStrides& strides, int64_t batch, int64_t head) {
  return static_cast<Value*>(data) + batch * strides.batch + head * strides.head;
}

/// Software prefetch of the rows of heads that will soon be read or written. Each row has its own
/// cache lines and page, so hardware prefetchers do not load it.
template <class Value>
class Ahead {
 public:
  /// Selects what to prefetch during block `index`, considering blocks up to `end`: the queries of
  /// the next block, and some keys and values of the next job.
  Ahead(const AttentionSizes& s, const AttentionForward& f, int64_t index, int64_t end)
      : bytes_(s.size * static_cast<int64_t>(sizeof(Value))) {
    if (index + 1 < end) {
      const QueryBlock next = block_of(s, index + 1);
      add(f.query, f.query_at, next.batch, next.head, next.number);
    }
    const int64_t later =
        index + query_blocks(s);  // during the last head of a job: a block of the next job
    if (later < end && later / blocks_of_job(s) > index / blocks_of_job(s)) {
      const QueryBlock next = block_of(s, later);
      add(f.key, f.key_at, next.batch, next.kv_head, next.number);
      add(f.value, f.value_at, next.batch, next.kv_head, next.number);
    }
  }

  void add(
      const void* tensor, const HeadStrides& strides, int64_t batch, int64_t head, int64_t block) {
    rows_[count_++] = {
        at<Value>(tensor, strides, batch, head) + block * kPanel * strides.position,
        strides.position};
  }

  /// Prefetches row r of each selected block.
  void ask_for(int64_t r) const {
    for (int64_t i = 0; i < count_; ++i) {
      const auto* row = reinterpret_cast<const char*>(rows_[i].first + r * rows_[i].stride);
      for (int64_t byte = 0; byte < bytes_; byte += 64) {
        _mm_prefetch(row + byte, _MM_HINT_T1);
      }
    }
  }

 private:
  struct Rows {
    const Value* first;
    int64_t stride;
  };
  Rows rows_[8];
  int64_t count_ = 0, bytes_;
};

}  // namespace
}  // namespace lockstep::ops::kernel
