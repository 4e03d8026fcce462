// Reductions of tensors in host memory, vectorized for the processor.
#include "comm/sums.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include <ATen/Dispatch.h>

#include "base/error.h"
#include "base/format.h"
#include "base/processor.h"

namespace lockstep::comm {
namespace {

template <Reduce reduce, class A>
void take_in(A& into, A value) {
  if constexpr (reduce == Reduce::kSum) {
    into = static_cast<A>(into + value);
  } else if constexpr (reduce == Reduce::kMax) {
    into = std::max(into, value);
  } else {
    into = std::min(into, value);
  }
}

/// Reduces the arrays in cache-sized blocks.
template <Reduce reduce, class T>
__attribute__((always_inline)) inline void reduce_as(
    std::span<const void* const> parts, int64_t n, T* out) {
  constexpr bool is_low = std::is_same_v<T, at::BFloat16> || std::is_same_v<T, at::Half>;
  using A = std::conditional_t<is_low, float, T>;
  constexpr int64_t kBlock = 2048;
  std::array<A, kBlock> block;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    const T* first = static_cast<const T*>(parts.front()) + begin;
    for (int64_t i = 0; i < count; ++i) {
      block[static_cast<size_t>(i)] = static_cast<A>(first[i]);
    }
    for (const void* part : parts.subspan(1)) {
      const T* values = static_cast<const T*>(part) + begin;
      for (int64_t i = 0; i < count; ++i) {
        take_in<reduce>(block[static_cast<size_t>(i)], static_cast<A>(values[i]));
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      out[begin + i] = static_cast<T>(block[static_cast<size_t>(i)]);
    }
  }
}

#if defined(__x86_64__)
template <Reduce reduce, class T>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2"))) void reduce_avx512(
    std::span<const void* const> parts, int64_t n, T* out) {
  reduce_as<reduce>(parts, n, out);
}
#endif

/// Chooses the version for this processor. AVX-512 is worthwhile because conversions dominate
/// 16-bit sums.
template <Reduce reduce, class T>
void reduce_here(std::span<const void* const> parts, int64_t n, T* out) {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx512) {
    return reduce_avx512<reduce>(parts, n, out);
  }
#endif
  reduce_as<reduce>(parts, n, out);
}

}  // namespace

bool can_reduce(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf ||
         type == at::kInt || type == at::kLong || type == at::kByte;
}

void reduce_parts(
    at::ScalarType type, Reduce reduce, std::span<const void* const> parts, int64_t n, void* out) {
  if (!can_reduce(type)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("tensors of type {} cannot be reduced", c10::toString(type)));
  }
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "reduce_parts", [&] {
    auto* into = static_cast<scalar_t*>(out);
    switch (reduce) {
      case Reduce::kSum:
        return reduce_here<Reduce::kSum>(parts, n, into);
      case Reduce::kMax:
        return reduce_here<Reduce::kMax>(parts, n, into);
      case Reduce::kMin:
        return reduce_here<Reduce::kMin>(parts, n, into);
    }
  });
}

}  // namespace lockstep::comm
