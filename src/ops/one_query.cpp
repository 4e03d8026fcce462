// Attention with a single query per head, for token generation.
#include "ops/one_query.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "ops/cpu/jobs.h"
#include "ops/cpu/vector.h"
#include "ops/cpu/vector_types.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;

/// Keys or values of a head: [S, D] with a row stride of `stride` values.
template <class T>
struct RowsOfAHead {
  const T* data;
  int64_t stride;
};

/// Dense queries [queries, size] of one key-value head, and their outputs.
template <class T>
struct QueriesOfAHead {
  const T* query;
  T* out;
  int64_t queries, size, keys;
  float scale;
};

/// Computes scores and sums in float32 and rounds the outputs once.
template <class T>
struct AttendToRows {
  static constexpr int64_t kAtOnce =
      4;  // number of vectors of a value row that are processed together

  LOCKSTEP_INLINE static float dot(const T* a, const T* b, int64_t size) {
    Floats sum{};
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      sum += vector::load(a + i) * vector::load(b + i);
    }
    if (i < size) {
      sum += vector::load_some(a + i, size - i) * vector::load_some(b + i, size - i);
    }
    return vector::sum(sum);
  }

  /// Replaces scores with e^(score - maximum) and returns the inverse of their sum.
  LOCKSTEP_INLINE static float exponentials(float* scores, int64_t keys) {
    float most = scores[0];
    for (int64_t i = 1; i < keys; ++i) {
      most = scores[i] <= most ? most : scores[i];  // NaN propagates
    }
    Floats total{};
    for (int64_t i = 0; i < keys; i += kLanes) {
      const int64_t count = std::min(kLanes, keys - i);
      constexpr float kLowest = -3.4e38F;
      const Floats score = count == kLanes ? vector::load(scores + i)
                                           : vector::load_some(scores + i, count, kLowest);
      const Floats e = vector::exponential(score - most);
      vector::store_up_to(scores + i, e, count);
      total += e;
    }
    return 1 / vector::sum(total);
  }

  LOCKSTEP_INLINE static void run(
      const QueriesOfAHead<T>& of,
      const RowsOfAHead<T>& keys,
      const RowsOfAHead<T>& values,
      float* scores) {
    for (int64_t key = 0; key < of.keys; ++key) {
      for (int64_t i = 0; i < of.queries; ++i) {
        scores[i * of.keys + key] =
            of.scale * dot(of.query + i * of.size, keys.data + key * keys.stride, of.size);
      }
    }
    for (int64_t i = 0; i < of.queries; ++i) {
      float* const weights = scores + i * of.keys;
      const float inverse = exponentials(weights, of.keys);
      T* const out = of.out + i * of.size;
      int64_t at = 0;
      for (; at + kAtOnce * kLanes <= of.size; at += kAtOnce * kLanes) {
        Floats sums[kAtOnce] = {};
        for (int64_t key = 0; key < of.keys; ++key) {
          const T* const value = values.data + key * values.stride + at;
          for (int64_t part = 0; part < kAtOnce; ++part) {
            sums[part] += vector::load(value + part * kLanes) * weights[key];
          }
        }
        for (int64_t part = 0; part < kAtOnce; ++part) {
          vector::store(out + at + part * kLanes, sums[part] * inverse);
        }
      }
      for (; at < of.size; at += kLanes) {
        const int64_t count = std::min(kLanes, of.size - at);
        Floats sum{};
        for (int64_t key = 0; key < of.keys; ++key) {
          sum += vector::load_up_to(values.data + key * values.stride + at, count) * weights[key];
        }
        vector::store_up_to(out + at, sum * inverse, count);
      }
    }
  }
};

template <class T>
Tensor by_loops(const Tensor& query, const Tensor& key, const Tensor& value, double scale) {
  const auto dense = [](const Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); };
  const Tensor q = query.contiguous(), k = dense(key), v = dense(value);
  Tensor out = at::empty(q.sizes(), q.options());
  const int64_t heads = k.size(1), queries = q.size(1) / heads, size = q.size(3), keys = k.size(2);
  const auto rows_of = [](const Tensor& x, int64_t row, int64_t head) {
    return RowsOfAHead<T>{elements<T>(x) + row * x.stride(0) + head * x.stride(1), x.stride(2)};
  };
  over_jobs(
      q.size(0) * heads,
      queries * keys * static_cast<int64_t>(sizeof(float)),
      [&](int64_t first, int64_t last, void* scratch) {
        for (int64_t job = first; job < last; ++job) {
          const int64_t begin = job * queries * size;
          vector::dispatch<AttendToRows<T>>(
              QueriesOfAHead<T>{
                  elements<T>(q) + begin,
                  mutable_elements<T>(out) + begin,
                  queries,
                  size,
                  keys,
                  static_cast<float>(scale)},
              rows_of(k, job / heads, job % heads),
              rows_of(v, job / heads, job % heads),
              static_cast<float*>(scratch));
        }
      });
  return out;
}

}  // namespace

Tensor one_query_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, double scale) {
  if (query.scalar_type() == at::kFloat) {
    return by_loops<float>(query, key, value, scale);
  }
  if (query.scalar_type() == at::kBFloat16) {
    return by_loops<vector::Bfloat16>(query, key, value, scale);
  }
  const int64_t rows = query.size(0) * key.size(1), size = query.size(3);
  const auto part = [&](const Tensor& x) { return x.reshape({rows, x.size(2), size}); };
  const Tensor q = query.reshape({rows, query.size(1) / key.size(1), size});
  const Tensor weights = at::softmax(at::bmm(q, part(key).transpose(1, 2)).mul_(scale), -1);
  return at::bmm(weights, part(value)).view(query.sizes());
}

}  // namespace lockstep::ops
