#include "ops/softmax_rows.h"

#include <cmath>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/vector.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;

constexpr float kLowest = -3.4e38F;

/// One row: its loss; `exponentials` is scratch of V floats, rounded up to lanes.
template <class T>
struct Row {
  LOCKSTEP_INLINE static void run(
      T* logits, int64_t target, int64_t size, float* exponentials, float* loss, bool overwrite) {
    const int64_t whole = size / kLanes * kLanes, rest = size - whole;
    Floats most = vector::load_some(logits + whole, rest, kLowest);
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats value = vector::load(logits + i);
      // A NaN stays: it compares false with everything.
      most = value <= most ? most : value;
    }
    const float peak = vector::maximum(most);
    Floats total{};
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats e = vector::exponential(vector::load(logits + i) - peak);
      vector::store(exponentials + i, e);
      total += e;
    }
    if (rest > 0) {
      const Floats e = vector::exponential(vector::load_some(logits + whole, rest, kLowest) - peak);
      vector::store(exponentials + whole, e);
      total += e;
    }
    const float sum = vector::sum(total);
    *loss = std::log(sum) + peak - vector::widen(logits[target]);
    if (!overwrite) {
      return;
    }
    const float scale = 1 / sum;
    for (int64_t i = 0; i < whole; i += kLanes) {
      vector::store(logits + i, vector::load(exponentials + i) * scale);
    }
    vector::store_some(logits + whole, vector::load(exponentials + whole) * scale, rest);
    vector::narrow(exponentials[target] * scale - 1, logits[target]);
  }
};

template <class T>
struct IsLikeliest {
  LOCKSTEP_INLINE static void run(const T* logits, int64_t target, int64_t size, bool* result) {
    const float own = vector::widen(logits[target]);
    int64_t larger = 0;
    for (int64_t i = 0; i < target; ++i) {
      larger += vector::widen(logits[i]) >= own ? 1 : 0;
    }
    for (int64_t i = target + 1; i < size; ++i) {
      larger += vector::widen(logits[i]) > own ? 1 : 0;
    }
    *result = larger == 0 && own == own;
  }
};

template <class T>
void losses(Tensor& logits, const Tensor& targets, LogitsUse use, Tensor& result) {
  auto* rows = static_cast<T*>(logits.mutable_data_ptr());
  const auto* target = targets.const_data_ptr<int64_t>();
  auto* loss = result.mutable_data_ptr<float>();
  const int64_t size = logits.size(1);
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    const auto scratch = std::make_unique<float[]>(static_cast<size_t>(size + kLanes));
    for (int64_t i = begin; i < end; ++i) {
      vector::dispatch<Row<T>>(
          rows + i * size,
          target[i],
          size,
          scratch.get(),
          loss + i,
          use == LogitsUse::kBecomeGradient);
    }
  });
}

template <class T>
void likeliest(const Tensor& logits, const Tensor& targets, Tensor& result) {
  const auto* rows = static_cast<const T*>(logits.const_data_ptr());
  const auto* target = targets.const_data_ptr<int64_t>();
  auto* flags = result.mutable_data_ptr<bool>();
  const int64_t size = logits.size(1);
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      vector::dispatch<IsLikeliest<T>>(rows + i * size, target[i], size, flags + i);
    }
  });
}

}  // namespace

Tensor softmax_losses_on_cpu(Tensor& logits, const Tensor& targets, LogitsUse use) {
  Tensor result = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  if (logits.scalar_type() == at::kFloat) {
    losses<float>(logits, targets, use, result);
  } else {
    losses<vector::Bfloat16>(logits, targets, use, result);
  }
  return result;
}

Tensor likeliest_on_cpu(const Tensor& logits, const Tensor& targets) {
  Tensor result = at::empty({logits.size(0)}, logits.options().dtype(at::kBool));
  if (logits.scalar_type() == at::kFloat) {
    likeliest<float>(logits, targets, result);
  } else {
    likeliest<vector::Bfloat16>(logits, targets, result);
  }
  return result;
}

}  // namespace lockstep::ops
