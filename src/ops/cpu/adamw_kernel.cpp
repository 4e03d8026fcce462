// AdamW loops for plain x86-64 and AVX2.
#include "ops/cpu/adamw_kernel.h"

#include <bit>
#include <cmath>

#include "base/processor.h"

// The loop is compiled for plain x86-64 and for AVX2, and the version is chosen at run time. AVX2
// is deliberately used without FMA: both versions then round each operation identically, so that
// all machines produce the same bits. The loop is limited by memory bandwidth in any case.
#if defined(__x86_64__) && defined(__GNUC__)
#define LOCKSTEP_HAS_AVX2_VERSION 1
#else
#define LOCKSTEP_HAS_AVX2_VERSION 0
#endif

namespace lockstep::ops::kernel {
namespace {

__attribute__((always_inline)) inline float widen(float value) {
  return value;
}
__attribute__((always_inline)) inline float widen(Bfloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN.
__attribute__((always_inline)) inline Bfloat16 narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded)};
}

enum class Low { kNone, kWritten };

template <Low kLow, class Gradient>
__attribute__((always_inline)) inline void loop(
    const AdamWFactors& factors, int64_t count, const AdamWArrays<Gradient>& arrays) {
  const AdamWFactors f = factors;
  const AdamWArrays<Gradient> a = arrays;
#pragma GCC ivdep  // the arrays do not overlap
  for (int64_t i = 0; i < count; ++i) {
    const float g = widen(a.gradient[i]) * f.scale;
    const float m = f.beta1 * a.exp_avg[i] + f.new1 * g;
    const float v = f.beta2 * a.exp_avg_sq[i] + f.new2 * (g * g);
    const float below = std::sqrt(v) * f.root_factor + f.epsilon;
    const float w = f.keep * a.weight[i] - f.rate * (m / below);
    a.exp_avg[i] = m;
    a.exp_avg_sq[i] = v;
    a.weight[i] = w;
    if constexpr (kLow == Low::kWritten) {
      a.low[i] = narrow(w);
    }
  }
}

template <Low kLow, class Gradient>
void loop_plain(const AdamWFactors& factors, int64_t count, const AdamWArrays<Gradient>& arrays) {
  loop<kLow>(factors, count, arrays);
}

#if LOCKSTEP_HAS_AVX2_VERSION
template <Low kLow, class Gradient>
__attribute__((target("avx2"))) void loop_avx2(
    const AdamWFactors& factors, int64_t count, const AdamWArrays<Gradient>& arrays) {
  loop<kLow>(factors, count, arrays);
}

bool has_avx2() {
  static const bool has = instruction_set() >= InstructionSet::kAvx2;
  return has;
}
#endif

template <Low kLow, class Gradient>
void dispatch(const AdamWFactors& factors, int64_t count, const AdamWArrays<Gradient>& arrays) {
#if LOCKSTEP_HAS_AVX2_VERSION
  if (has_avx2()) {
    loop_avx2<kLow>(factors, count, arrays);
    return;
  }
#endif
  loop_plain<kLow>(factors, count, arrays);
}

template <class Gradient>
void update(const AdamWFactors& factors, int64_t count, const AdamWArrays<Gradient>& arrays) {
  if (arrays.low == nullptr) {
    dispatch<Low::kNone>(factors, count, arrays);
  } else {
    dispatch<Low::kWritten>(factors, count, arrays);
  }
}

}  // namespace

void adamw(const AdamWFactors& factors, int64_t count, const AdamWArrays<float>& arrays) {
  update(factors, count, arrays);
}

void adamw(const AdamWFactors& factors, int64_t count, const AdamWArrays<Bfloat16>& arrays) {
  update(factors, count, arrays);
}

}  // namespace lockstep::ops::kernel
