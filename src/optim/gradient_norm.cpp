// Gradient norms on CPUs and other devices.
#include "optim/gradient_norm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "base/format.h"
#include "base/processor.h"
#include "ops/cpu/host_loops.h"

namespace lockstep::optim {
namespace {

/// Each block is summed by one thread in a fixed order, so that the number of threads does not
/// affect the result.
constexpr int64_t kBlock = 65536;
/// Number of independent partial sums within a block; sufficient for the widest vector units.
constexpr int64_t kLanes = 32;

float widen(float value) {
  return value;
}
double widen(double value) {
  return value;
}
float widen(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <class T>
__attribute__((always_inline)) inline double block_sum_loop(const T* values, int64_t count) {
  std::array<double, kLanes> sums{};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = widen(values[i + lane]);
      sums[static_cast<size_t>(lane)] += value * value;  // exact: the square of a 24-bit number
                                                         // fits in 53 bits
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    const double value = widen(values[i]);
    sums[static_cast<size_t>(i - whole)] += value * value;
  }
  double total = 0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

#if defined(__x86_64__) && defined(__GNUC__)
/// The same loop in AVX2. The result is bit-identical, because products are exact and the number of
/// lanes is fixed.
template <class T>
__attribute__((target("avx2"))) double block_sum_avx2(const T* values, int64_t count) {
  return block_sum_loop(values, count);
}
#endif

template <class T>
double block_sum(const T* values, int64_t count) {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool has_avx2 = instruction_set() >= InstructionSet::kAvx2;
  if (has_avx2) {
    return block_sum_avx2(values, count);
  }
#endif
  return block_sum_loop(values, count);
}

template <class T>
double sum_of_squares(const T* values, int64_t count) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      sums[static_cast<size_t>(block)] = block_sum(values + first, std::min(kBlock, count - first));
    }
  });
  double total = 0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

template <class T>
std::optional<int64_t> find_non_finite(const T* values, int64_t count) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  std::mutex mutex;
  int64_t first = std::numeric_limits<int64_t>::max();
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(end * kBlock, count);
    for (int64_t i = begin * kBlock; i < last; ++i) {
      if (!std::isfinite(widen(values[i]))) {
        const std::lock_guard lock(mutex);
        first = std::min(first, i);
        return;
      }
    }
  });
  return first == std::numeric_limits<int64_t>::max() ? std::nullopt : std::optional(first);
}

void check(const at::Tensor& flat) {
  const at::ScalarType type = flat.scalar_type();
  if (!flat.is_contiguous() ||
      (type != at::kFloat && type != at::kBFloat16 && type != at::kDouble)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "the norm requires contiguous float32, bfloat16 or float64 gradients, not {}{}",
            flat.is_contiguous() ? "" : "strided ",
            c10::toString(type)));
  }
}

}  // namespace

double squared_norm(const at::Tensor& flat) {
  if (!flat.defined() || flat.numel() == 0) {
    return 0;
  }
  check(flat);
  if (!ops::has_host_loops(flat)) {
    return squares_on_device(flat).item<double>();
  }
  if (flat.scalar_type() == at::kDouble) {
    return sum_of_squares(flat.const_data_ptr<double>(), flat.numel());
  }
  return flat.scalar_type() == at::kFloat
             ? sum_of_squares(flat.const_data_ptr<float>(), flat.numel())
             : sum_of_squares(static_cast<const uint16_t*>(flat.const_data_ptr()), flat.numel());
}

at::Tensor squares_on_device(const at::Tensor& flat) {
  check(flat);
  const c10::NoGradGuard no_grad;
  // Computes float32 norms of short chunks, which read the gradients directly. For a float64 norm,
  // ATen would first create a float64 copy of all gradients.
  constexpr int64_t kPiece = int64_t{1} << 16;
  const int64_t even = flat.numel() / kPiece * kPiece;
  const auto type = flat.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto squares = [type](const at::Tensor& pieces) {  // [P, n]
    return at::linalg_vector_norm(pieces, 2, at::IntArrayRef({1}), false, type)
        .to(at::kDouble)
        .square_()
        .sum(0, /*keepdim=*/true);
  };
  at::Tensor sum = squares(flat.detach().narrow(0, even, flat.numel() - even).view({1, -1}));
  return even > 0 ? sum.add_(squares(flat.detach().narrow(0, 0, even).view({-1, kPiece}))) : sum;
}

std::optional<int64_t> first_non_finite(const at::Tensor& flat) {
  if (!flat.defined() || flat.numel() == 0) {
    return std::nullopt;
  }
  check(flat);
  if (!ops::has_host_loops(flat)) {
    const c10::NoGradGuard no_grad;
    const at::Tensor bad = at::isfinite(flat.detach()).logical_not().nonzero();  // [count, 1]
    return bad.numel() == 0 ? std::nullopt : std::optional(bad[0][0].item<int64_t>());
  }
  if (flat.scalar_type() == at::kDouble) {
    return find_non_finite(flat.const_data_ptr<double>(), flat.numel());
  }
  return flat.scalar_type() == at::kFloat
             ? find_non_finite(flat.const_data_ptr<float>(), flat.numel())
             : find_non_finite(static_cast<const uint16_t*>(flat.const_data_ptr()), flat.numel());
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace lockstep::optim
