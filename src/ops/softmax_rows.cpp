// Row-wise softmax statistics and gradients of logits.
#include "ops/softmax_rows.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/cpu/host_loops.h"
#include "ops/cpu/vector.h"
#include "ops/cuda_loops.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;

constexpr float kLowest = -3.4e38F;

template <class T>
struct StatisticsRow {
  LOCKSTEP_INLINE static void run(
      const T* logits, int64_t target, int64_t size, float* maximum, float* total, float* own) {
    const int64_t whole = size / kLanes * kLanes, rest = size - whole;
    Floats most = vector::load_some(logits + whole, rest, kLowest);
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats value = vector::load(logits + i);
      // NaN propagates, because every comparison with it is false.
      most = value <= most ? most : value;
    }
    const float peak = vector::maximum(most);
    Floats sums{};
    for (int64_t i = 0; i < whole; i += kLanes) {
      sums += vector::exponential(vector::load(logits + i) - peak);
    }
    if (rest > 0) {
      sums += vector::exponential(vector::load_some(logits + whole, rest, kLowest) - peak);
    }
    *maximum = peak;
    *total = vector::sum(sums);
    *own = target >= 0 && target < size ? vector::widen(logits[target]) : 0;
  }
};

template <class T>
struct GradientRow {
  LOCKSTEP_INLINE static void run(
      T* logits,
      int64_t target,
      int64_t size,
      float log_sum,
      float softmax_factor,
      float target_factor,
      float inverse_cap) {
    const int64_t whole = size / kLanes * kLanes, rest = size - whole;
    const bool is_here = target >= 0 && target < size;
    const float own = is_here ? vector::widen(logits[target]) : 0;
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats logit = vector::load(logits + i), t = logit * inverse_cap;
      const Floats p = vector::exponential(logit - log_sum) * softmax_factor;
      vector::store(logits + i, p * (1.0F - t * t));
    }
    if (rest > 0) {
      const Floats logit = vector::load_some(logits + whole, rest, kLowest),
                   t = logit * inverse_cap;
      const Floats p = vector::exponential(logit - log_sum) * softmax_factor;
      vector::store_some(logits + whole, p * (1.0F - t * t), rest);
    }
    if (is_here) {
      // Computed from the float32 value instead of the rounded element.
      const Floats p = vector::exponential(vector::splat(own) - log_sum) * softmax_factor;
      const float t = own * inverse_cap;
      vector::narrow((p[0] - target_factor) * (1 - t * t), logits[target]);
    }
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
void statistics_on_cpu(const Tensor& logits, const Tensor& targets, RowStatistics& result) {
  const auto* rows = static_cast<const T*>(logits.const_data_ptr());
  const auto* target = targets.const_data_ptr<int64_t>();
  auto* maximum = result.maximum.mutable_data_ptr<float>();
  auto* total = result.total.mutable_data_ptr<float>();
  auto* own = result.target.mutable_data_ptr<float>();
  const int64_t size = logits.size(1);
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      vector::dispatch<StatisticsRow<T>>(
          rows + i * size, target[i], size, maximum + i, total + i, own + i);
    }
  });
}

template <class T>
void gradient_on_cpu(
    Tensor& logits,
    const Tensor& targets,
    const Tensor& log_sum,
    const Tensor& softmax_factor,
    const Tensor& target_factor,
    float inverse_cap) {
  auto* rows = static_cast<T*>(logits.mutable_data_ptr());
  const auto* target = targets.const_data_ptr<int64_t>();
  const auto* sum = log_sum.const_data_ptr<float>();
  const auto* of_softmax = softmax_factor.const_data_ptr<float>();
  const auto* of_target = target_factor.const_data_ptr<float>();
  const int64_t size = logits.size(1);
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      vector::dispatch<GradientRow<T>>(
          rows + i * size, target[i], size, sum[i], of_softmax[i], of_target[i], inverse_cap);
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

at::ScalarType high_type(const Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

const CudaLoops* cuda_loops_for(const Tensor& logits) {
  const auto type = logits.scalar_type();
  const bool fits = logits.is_cuda() && logits.numel() > 0 &&
                    (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
  return fits && cuda_loops().row_statistics != nullptr ? &cuda_loops() : nullptr;
}

/// Targets as indices, and a mask of the targets in [0, V).
struct Index {
  Tensor at, is_here;  // [n, 1]
};

Index index_of(const Tensor& logits, const Tensor& targets) {
  const Tensor is_here = targets.ge(0).logical_and(targets.lt(logits.size(1))).unsqueeze(1);
  return {targets.unsqueeze(1).masked_fill(is_here.logical_not(), 0), is_here};
}

}  // namespace

bool has_row_loops(const Tensor& logits) {
  return has_host_loops(logits) &&
         (logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kBFloat16);
}

void cap_logits(Tensor& logits, double softcap) {
  logits.div_(softcap).tanh_().mul_(softcap);
}

RowStatistics row_statistics(const Tensor& logits, const Tensor& targets) {
  if (has_row_loops(logits)) {
    const auto floats = logits.options().dtype(at::kFloat);
    RowStatistics result{
        at::empty({logits.size(0)}, floats),
        at::empty({logits.size(0)}, floats),
        at::empty({logits.size(0)}, floats)};
    const Tensor dense = targets.contiguous();
    if (logits.scalar_type() == at::kFloat) {
      statistics_on_cpu<float>(logits, dense, result);
    } else {
      statistics_on_cpu<vector::Bfloat16>(logits, dense, result);
    }
    return result;
  }
  if (const CudaLoops* loops = cuda_loops_for(logits)) {
    const auto floats = logits.options().dtype(at::kFloat);
    const Tensor each = at::empty({3, logits.size(0)}, floats);
    RowStatistics result{each[0], each[1], each[2]};
    loops->row_statistics(logits, targets.contiguous(), result);
    return result;
  }
  const Tensor high = logits.to(high_type(logits));
  const Tensor maximum = high.amax(1, /*keepdim=*/true);
  const Index index = index_of(logits, targets);
  return {
      maximum.squeeze(1),
      (high - maximum).exp().sum(1),
      high.gather(1, index.at).masked_fill(index.is_here.logical_not(), 0).squeeze(1)};
}

void logits_become_gradient(
    Tensor& logits,
    const Tensor& targets,
    const Tensor& log_sum,
    const Tensor& softmax_factor,
    const Tensor& target_factor,
    double softcap) {
  const float inverse_cap = softcap > 0 ? static_cast<float>(1 / softcap) : 0;
  if (const CudaLoops* loops = cuda_loops_for(logits)) {
    loops->logits_become_gradient(
        logits,
        targets.contiguous(),
        log_sum.contiguous(),
        softmax_factor.contiguous(),
        target_factor.contiguous(),
        inverse_cap);
    return;
  }
  if (has_row_loops(logits)) {
    (logits.scalar_type() == at::kFloat
         ? gradient_on_cpu<float>
         : gradient_on_cpu<vector::Bfloat16>)(logits,
                                              targets.contiguous(),
                                              log_sum.contiguous(),
                                              softmax_factor.contiguous(),
                                              target_factor.contiguous(),
                                              inverse_cap);
    return;
  }
  const Tensor high = logits.to(high_type(logits));
  Tensor gradient = (high - log_sum.unsqueeze(1)).exp_().mul_(softmax_factor.unsqueeze(1));
  const Index index = index_of(logits, targets);
  gradient.scatter_add_(1, index.at, target_factor.unsqueeze(1) * index.is_here * -1);
  if (softcap > 0) {
    gradient.mul_(1 - (high / softcap).square());
  }
  logits.copy_(gradient);
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
