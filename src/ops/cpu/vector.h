// Vectors of sixteen floats for the CPU loops of this module. They use GCC's vector types and are
// compiled for plain x86-64, AVX2 and AVX-512 (and for any other processor); the version is chosen
// at run time. Internal to ops. Do not include this file in headers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/processor.h"

// The warning is about the way functions pass vectors, but all functions that return vectors are
// inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

namespace lockstep::ops::vector {

inline constexpr int64_t kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint64_t Longs __attribute__((vector_size(64)));   // 8 values
typedef uint16_t Halves __attribute__((vector_size(32)));  // 16 values

/// A bfloat16 value, stored as bits.
struct Bfloat16 {
  uint16_t bits;
};

/// Replacement for std::bit_cast, which in builds without inlining is a function that passes wide
/// vectors with the baseline's calling convention.
template <class To, class From>
LOCKSTEP_INLINE To same_bits(const From& value) {
  return __builtin_bit_cast(To, value);
}

LOCKSTEP_INLINE Floats splat(float value) {
  return Floats{} + value;
}

LOCKSTEP_INLINE float widen(float value) {
  return value;
}
LOCKSTEP_INLINE float widen(Bfloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
/// Rounds to nearest, ties to even; NaN stays NaN.
LOCKSTEP_INLINE void narrow(float value, float& out) {
  out = value;
}
LOCKSTEP_INLINE void narrow(float value, Bfloat16& out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  out.bits = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
}

LOCKSTEP_INLINE Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
LOCKSTEP_INLINE Floats load(const Bfloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
  return same_bits<Floats>(__builtin_convertvector(halves, Words) << 16);
}
LOCKSTEP_INLINE void store(float* to, const Floats& value) {
  std::memcpy(to, &value, sizeof(value));
}
LOCKSTEP_INLINE void store(Bfloat16* to, const Floats& value) {
  const auto bits = same_bits<Words>(value);
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Words chosen = (bits & 0x7fffffffU) > 0x7f800000U ? Words{} + 0x7fc0U : rounded;
  const Halves halves = __builtin_convertvector(chosen, Halves);
  std::memcpy(to, &halves, sizeof(halves));
}

/// Applies mix_bits() (base/counter_random.h) to each lane.
LOCKSTEP_INLINE Longs mix(const Longs& word) {
  Longs x = word;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Loads the first `count` lanes (fewer than 16); the other lanes are `rest`.
template <class T>
LOCKSTEP_INLINE Floats load_some(const T* from, int64_t count, float rest = 0) {
  Floats value = splat(rest);
  for (int64_t i = 0; i < count; ++i) {
    value[i] = widen(from[i]);
  }
  return value;
}
template <class T>
LOCKSTEP_INLINE void store_some(T* to, const Floats& value, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    narrow(value[i], to[i]);
  }
}

/// Loads all lanes, or only the first `count` if that is fewer.
template <class T>
LOCKSTEP_INLINE Floats load_up_to(const T* from, int64_t count) {
  return count >= kLanes ? load(from) : load_some(from, count);
}
template <class T>
LOCKSTEP_INLINE void store_up_to(T* to, const Floats& value, int64_t count) {
  if (count >= kLanes) {
    store(to, value);
  } else {
    store_some(to, value, count);
  }
}

LOCKSTEP_INLINE float sum(const Floats& value) {
  Floats half = value;
  half += __builtin_shufflevector(half, half, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  half += __builtin_shufflevector(half, half, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3);
  half += __builtin_shufflevector(half, half, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1);
  half += __builtin_shufflevector(half, half, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0);
  return half[0];
}
LOCKSTEP_INLINE float maximum(const Floats& value) {
  float most = value[0];
  for (int64_t i = 1; i < kLanes; ++i) {
    most = value[i] > most ? value[i] : most;
  }
  return most;
}

/// Returns e^x for x up to 88, and 0 below -87. The error is at most 2 units in the last place
/// (Cephes' polynomial and reduction).
LOCKSTEP_INLINE Floats exponential(const Floats& x) {
  constexpr float kRound = 12582912.0F;  // adding and subtracting it rounds to an integer
  const Floats turns = (x * 1.44269504F + kRound) - kRound;
  const Floats r = (x - turns * 0.693359375F) + turns * 2.12194440e-4F;
  Floats p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Ints exponent = (__builtin_convertvector(turns, Ints) + 127) << 23;
  const Floats result = p * same_bits<Floats>(exponent);
  return x < -87.0F ? Floats{} : result;
}

#if defined(__x86_64__)
template <class Kernel, class... Args>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) void run_avx512(
    const Args&... args) {
  Kernel::run(args...);
}
template <class Kernel, class... Args>
__attribute__((target("avx2,fma"))) void run_avx2(const Args&... args) {
  Kernel::run(args...);
}
#endif

enum class Level { kPlain, kAvx2, kAvx512 };

/// The highest level that may be used on this processor (base/processor.h). Tests lower it to cover
/// all versions.
inline Level& level() {
  static Level found = [] {
    if (instruction_set() >= InstructionSet::kAvx512) {
      return Level::kAvx512;
    }
    return instruction_set() >= InstructionSet::kAvx2 ? Level::kAvx2 : Level::kPlain;
  }();
  return found;
}

/// Calls the version of Kernel::run(args...) that is compiled for this processor. Kernel::run must
/// be LOCKSTEP_INLINE and must not contain lambdas.
template <class Kernel, class... Args>
void dispatch(const Args&... args) {
#if defined(__x86_64__)
  switch (level()) {
    case Level::kAvx512:
      return run_avx512<Kernel>(args...);
    case Level::kAvx2:
      return run_avx2<Kernel>(args...);
    case Level::kPlain:
      break;
  }
#endif
  Kernel::run(args...);
}

}  // namespace lockstep::ops::vector
