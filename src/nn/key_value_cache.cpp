// Key-value cache with growing buffers and sliding windows.
#include "nn/key_value_cache.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::nn {

KeyValueCache::KeyValueCache(const model::ModelConfig& config)
    : entries_(static_cast<size_t>(config.layers)) {
  for (size_t layer = 0; layer < entries_.size(); ++layer) {
    entries_[layer].window = config.sliding_windows.at(layer);
  }
}

std::pair<Tensor, Tensor> KeyValueCache::append(
    int64_t layer, const Tensor& key, const Tensor& value) {
  constexpr int64_t kLeastCapacity = 64;
  const at::NoGradGuard no_gradient;
  Entry& entry = entries_.at(static_cast<size_t>(layer));
  const int64_t added = key.size(2);
  if (entry.window > 0) {
    entry.begin = std::max(entry.begin, entry.end - (entry.window - 1));
  }
  const int64_t kept = entry.end - entry.begin;
  const int64_t capacity = entry.keys.defined() ? entry.keys.size(2) : 0;
  if (entry.end + added > capacity) {
    // Doubles the capacity, so that each element is copied O(1) times on average.
    const auto grown = [&](const Tensor& old, const Tensor& like) {
      Tensor bigger = at::empty(
          {like.size(0), like.size(1), std::max(kLeastCapacity, 2 * (kept + added)), like.size(3)},
          like.options());
      if (kept > 0) {
        bigger.narrow(2, 0, kept).copy_(old.narrow(2, entry.begin, kept));
      }
      return bigger;
    };
    entry.keys = grown(entry.keys, key);
    entry.values = grown(entry.values, value);
    entry.begin = 0;
    entry.end = kept;
  }
  entry.keys.narrow(2, entry.end, added).copy_(key);
  entry.values.narrow(2, entry.end, added).copy_(value);
  entry.end += added;
  return {
      entry.keys.narrow(2, entry.begin, kept + added),
      entry.values.narrow(2, entry.begin, kept + added)};
}

const std::pair<Tensor, Tensor>& KeyValueCache::source(
    int64_t layer, const std::function<std::pair<Tensor, Tensor>()>& make) {
  std::pair<Tensor, Tensor>& kept = entries_.at(static_cast<size_t>(layer)).source;
  if (!kept.first.defined()) {
    kept = make();
  }
  return kept;
}

void KeyValueCache::keep_rows(const Tensor& rows) {
  const at::NoGradGuard no_gradient;
  for (Entry& entry : entries_) {
    for (Tensor* const each :
         {&entry.keys, &entry.values, &entry.source.first, &entry.source.second}) {
      if (each->defined()) {
        *each = each->index_select(0, rows.to(each->device()));
      }
    }
  }
}

void KeyValueCache::move_rows(const Tensor& from, const Tensor& to, int64_t kept) {
  const at::NoGradGuard no_gradient;
  for (Entry& entry : entries_) {
    for (Tensor* const each : {&entry.keys, &entry.values}) {
      if (each->defined()) {
        const Tensor used = each->narrow(2, entry.begin, entry.end - entry.begin);
        if (from.numel() > 0) {
          used.index_copy_(0, to.to(each->device()), used.index_select(0, from.to(each->device())));
        }
        *each = each->narrow(0, 0, kept);
      }
    }
  }
}

int64_t KeyValueCache::bytes() const {
  int64_t total = 0;
  for (const Entry& entry : entries_) {
    if (entry.keys.defined()) {
      total += static_cast<int64_t>(entry.keys.nbytes() + entry.values.nbytes());
    }
    if (entry.source.first.defined()) {
      total += static_cast<int64_t>(entry.source.first.nbytes() + entry.source.second.nbytes());
    }
  }
  return total;
}

}  // namespace lockstep::nn
