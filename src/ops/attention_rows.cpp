// Masked row-wise softmax of attention scores, and its backward pass.
#include "ops/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/cpu/vector.h"
#include "ops/cpu/vector_types.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;

/// Computes the softmax of one row of scores, of which the keys [first, last) are visible.
template <class T>
struct SoftmaxRow {
  LOCKSTEP_INLINE static void run(
      T* scores,
      int64_t first,
      int64_t last,
      int64_t keys,
      float scale,
      float* scratch,
      float* sink) {  // score of the sink, which is replaced with its probability; null: no sink
    const int64_t count = last - first, whole = count / kLanes * kLanes, rest = count - whole;
    T* seen = scores + first;
    constexpr float kLowest = -3.4e38F;
    Floats most = vector::splat(kLowest);
    if (rest > 0) {
      const Floats value = vector::load_some(seen + whole, rest) * scale;
      vector::store_some(scratch + whole, value, rest);
      for (int64_t i = 0; i < rest; ++i) {
        most[i] = value[i];
      }
    }
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats value = vector::load(seen + i) * scale;
      vector::store(scratch + i, value);
      most = value <= most ? most : value;  // NaN propagates
    }
    float peak = vector::maximum(most);
    if (sink != nullptr) {
      peak = *sink > peak ? *sink : peak;
    }
    Floats total{};
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats e = vector::exponential(vector::load(scratch + i) - peak);
      vector::store(scratch + i, e);
      total += e;
    }
    if (rest > 0) {
      const Floats e =
          vector::exponential(vector::load_some(scratch + whole, rest, kLowest) - peak);
      vector::store_some(scratch + whole, e, rest);
      total += e;
    }
    float sum = vector::sum(total);
    if (sink != nullptr) {
      *sink = std::exp(*sink - peak);
      sum += *sink;
    }
    const float inverse = 1 / sum;
    if (sink != nullptr) {
      *sink *= inverse;
    }
    for (int64_t i = 0; i < first; ++i) {
      scores[i] = T{};
    }
    for (int64_t i = 0; i < whole; i += kLanes) {
      vector::store(seen + i, vector::load(scratch + i) * inverse);
    }
    for (int64_t i = whole; i < count; ++i) {
      vector::narrow(scratch[i] * inverse, seen[i]);
    }
    for (int64_t i = last; i < keys; ++i) {
      scores[i] = T{};
    }
  }
};

/// Returns a new tensor [n, queries] with the sink of each row of scores; undefined without sinks.
Tensor sinks_of_rows(const Tensor& sinks, const Tensor& scores, at::ScalarType type) {
  return sinks.defined() ? sinks.detach()
                               .to(type)
                               .repeat({scores.size(0) / sinks.size(0)})
                               .unsqueeze(1)
                               .repeat({1, scores.size(1)})
                         : Tensor();
}

template <class T>
struct BackwardRow {
  LOCKSTEP_INLINE static void run(T* gradient, const T* probabilities, int64_t keys, float scale) {
    const int64_t whole = keys / kLanes * kLanes, rest = keys - whole;
    Floats products =
        vector::load_some(gradient + whole, rest) * vector::load_some(probabilities + whole, rest);
    for (int64_t i = 0; i < whole; i += kLanes) {
      products += vector::load(gradient + i) * vector::load(probabilities + i);
    }
    const float mean = vector::sum(products);
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats p = vector::load(probabilities + i) * scale;
      vector::store(gradient + i, p * (vector::load(gradient + i) - mean));
    }
    for (int64_t i = whole; i < keys; ++i) {
      const float p = vector::widen(probabilities[i]) * scale;
      vector::narrow(p * (vector::widen(gradient[i]) - mean), gradient[i]);
    }
  }
};

template <class T>
Tensor softmax_on_cpu(Tensor& scores, double scale, const Visible& visible) {
  const int64_t queries = scores.size(1), keys = scores.size(2);
  auto* data = static_cast<T*>(scores.mutable_data_ptr());
  const int64_t grain = std::max<int64_t>(1, 8192 / keys);
  const Tensor kept = visible.starts.defined() ? visible.starts.contiguous() : Tensor();
  const int64_t* starts = kept.defined() ? kept.const_data_ptr<int64_t>() : nullptr;
  const int64_t heads = starts == nullptr ? 1 : scores.size(0) / kept.size(0);
  const Tensor kept_ends = visible.ends.defined() ? visible.ends.contiguous() : Tensor();
  const int64_t* ends = kept_ends.defined() ? kept_ends.const_data_ptr<int64_t>() : nullptr;
  const Tensor of_sinks = sinks_of_rows(visible.sinks, scores, at::kFloat);
  float* sinks = of_sinks.defined() ? of_sinks.mutable_data_ptr<float>() : nullptr;
  at::parallel_for(0, scores.size(0) * queries, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(keys + kLanes));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t query = row % queries;
      const int64_t place = row / queries / heads * queries + query;  // index in starts and ends
      const int64_t last = std::min(
          visible.sees_all  ? keys
          : ends != nullptr ? ends[place]
                            : visible.first_last + query,
          keys);
      int64_t first = visible.window > 0
                          ? std::max<int64_t>(visible.first_last + query - visible.window, 0)
                          : 0;
      if (starts != nullptr) {
        first = std::max(first, starts[place]);
      }
      vector::dispatch<SoftmaxRow<T>>(
          data + row * keys,
          first,
          last,
          keys,
          static_cast<float>(scale),
          scratch.data(),
          sinks == nullptr ? sinks : sinks + row);
    }
  });
  return of_sinks;
}

template <class T>
void backward_on_cpu(Tensor& gradient, const Tensor& probabilities, double scale) {
  const int64_t keys = gradient.size(2);
  auto* data = static_cast<T*>(gradient.mutable_data_ptr());
  const auto* seen = static_cast<const T*>(probabilities.const_data_ptr());
  const int64_t grain = std::max<int64_t>(1, 8192 / keys);
  at::parallel_for(0, gradient.size(0) * gradient.size(1), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      vector::dispatch<BackwardRow<T>>(
          data + row * keys, seen + row * keys, keys, static_cast<float>(scale));
    }
  });
}

}  // namespace

Tensor softmax_visible(Tensor& scores, double scale, const Visible& visible) {
  if (has_vector_loops(scores)) {
    return scores.scalar_type() == at::kFloat
               ? softmax_on_cpu<float>(scores, scale, visible)
               : softmax_on_cpu<vector::Bfloat16>(scores, scale, visible);
  }
  const auto longs = at::TensorOptions().dtype(at::kLong).device(scores.device());
  const Tensor key = at::arange(scores.size(2), longs);
  const Tensor last =
      at::arange(visible.first_last, visible.first_last + scores.size(1), longs).unsqueeze(1);
  Tensor hidden = visible.sees_all || visible.ends.defined()
                      ? at::zeros({scores.size(1), scores.size(2)}, longs.dtype(at::kBool))
                      : key >= last;  // [queries, keys]
  if (visible.window > 0) {
    hidden = hidden.logical_or(key < last - visible.window);
  }
  if (visible.starts.defined()) {  // [rows, queries, keys] -> [n, queries, keys]
    Tensor before = key < visible.starts.unsqueeze(2);
    if (visible.ends.defined()) {
      before = before.logical_or(key >= visible.ends.unsqueeze(2));
    }
    hidden = before.logical_or(hidden).repeat_interleave(scores.size(0) / before.size(0), 0);
  }
  const auto high = scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor masked =
      (scores.to(high) * scale).masked_fill(hidden, -std::numeric_limits<float>::infinity());
  const Tensor sinks = sinks_of_rows(visible.sinks, scores, high);
  if (!sinks.defined()) {
    scores.copy_(at::softmax(masked, -1));
    return {};
  }
  const Tensor all = at::softmax(at::cat({masked, sinks.unsqueeze(-1)}, -1), -1);
  scores.copy_(all.narrow(-1, 0, scores.size(2)));
  return all.select(-1, scores.size(2)).contiguous();
}

void softmax_visible_backward(Tensor& gradient, const Tensor& probabilities, double scale) {
  if (has_vector_loops(gradient)) {
    return gradient.scalar_type() == at::kFloat
               ? backward_on_cpu<float>(gradient, probabilities, scale)
               : backward_on_cpu<vector::Bfloat16>(gradient, probabilities, scale);
  }
  const auto high = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor p = probabilities.to(high), g = gradient.to(high);
  gradient.copy_(p * (g - (g * p).sum(-1, /*keepdim=*/true)) * scale);
}

}  // namespace lockstep::ops
