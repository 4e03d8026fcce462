// Vectorized Box-Muller generator whose bits are reproducible.
#include "ops/normal_draws.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/counter_random.h"
#include "ops/cpu/vector.h"

namespace lockstep::ops {
namespace {

using vector::Longs;
using vector::same_bits;

// Vectors of eight values.
typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Indices __attribute__((vector_size(64)));
typedef float Singles __attribute__((vector_size(32)));
typedef int32_t Integers __attribute__((vector_size(32)));
typedef uint32_t Bits __attribute__((vector_size(32)));

// Logarithm, sine and cosine follow Arm's optimized routines, which glibc has used since 2.28: they
// compute in double precision and round to float once. For all 2^24 arguments that occur here, the
// bits equal those of the originals, with or without fused multiply-add.

/// 1 / c and log(c) for one c in each sixteenth of [0.7, 1.4); the values for c = 1 are exact.
constexpr double kInverse[16] = {
    0x1.661ec79f8f3bep+0,
    0x1.571ed4aaf883dp+0,
    0x1.49539f0f010bp+0,
    0x1.3c995b0b80385p+0,
    0x1.30d190c8864a5p+0,
    0x1.25e227b0b8eap+0,
    0x1.1bb4a4a1a343fp+0,
    0x1.12358f08ae5bap+0,
    0x1.0953f419900a7p+0,
    0x1p+0,
    0x1.e608cfd9a47acp-1,
    0x1.ca4b31f026aap-1,
    0x1.b2036576afce6p-1,
    0x1.9c2d163a1aa2dp-1,
    0x1.886e6037841edp-1,
    0x1.767dcf5534862p-1};
constexpr double kLogarithm[16] = {
    -0x1.57bf7808caadep-2,
    -0x1.2bef0a7c06ddbp-2,
    -0x1.01eae7f513a67p-2,
    -0x1.b31d8a68224e9p-3,
    -0x1.6574f0ac07758p-3,
    -0x1.1aa2bc79c81p-3,
    -0x1.a4e76ce8c0e5ep-4,
    -0x1.1973c5a611cccp-4,
    -0x1.252f438e10c1ep-5,
    0x0p+0,
    0x1.aa5aa5df25984p-5,
    0x1.c5e53aa362eb4p-4,
    0x1.526e57720db08p-3,
    0x1.bc2860d22477p-3,
    0x1.1058bc8a07ee1p-2,
    0x1.4043057b6ee09p-2};

LOCKSTEP_INLINE Doubles look_up(const double (&table)[16], const Indices& at) {
  Doubles low, high;
  std::memcpy(&low, table, sizeof(low));
  std::memcpy(&high, table + 8, sizeof(high));
  return __builtin_shuffle(low, high, at);
}

/// Returns log(x) for positive normal numbers, as log(c) + k log(2) + log(1 + r), where x = 2^k c
/// (1 + r).
LOCKSTEP_INLINE Singles logarithm(const Singles& x) {
  const Bits bits = same_bits<Bits>(x);
  const Bits above = bits - 0x3f330000U;
  const Indices part = __builtin_convertvector((above >> 19) & 15U, Indices);
  const Integers k = same_bits<Integers>(above) >> 23;
  const Singles z = same_bits<Singles>(bits - (above & 0xff800000U));
  const Doubles r = __builtin_convertvector(z, Doubles) * look_up(kInverse, part) - 1.0;
  const Doubles coarse =
      look_up(kLogarithm, part) + __builtin_convertvector(k, Doubles) * 0x1.62e42fefa39efp-1;
  const Doubles r2 = r * r;
  const Doubles high =
      -0x1.00ea348b88334p-2 * r2 + (0x1.5575b0be00b6ap-2 * r - 0x1.ffffef20a4123p-2);
  return __builtin_convertvector(high * r2 + (coarse + r), Singles);
}

/// Computes sine and cosine of angles from 0 to 2 pi, as polynomials of the distance to the nearest
/// quarter turn.
LOCKSTEP_INLINE void turn(const Singles& angle, Singles& sine, Singles& cosine) {
  const Doubles wide = __builtin_convertvector(angle, Doubles);
  const Integers scaled = __builtin_convertvector(wide * 0x1.45f306dc9c883p+23, Integers);
  const Integers quarter = (scaled + 0x800000) >> 24;
  const Doubles x = wide - __builtin_convertvector(quarter, Doubles) * 0x1.921fb54442d18p0;
  const Doubles x2 = x * x, x3 = x * x2, x4 = x2 * x2;
  const Doubles of_sine = (x + x3 * -0x1.555545995a603p-3) +
                          (x3 * x2) * (0x1.1107605230bc4p-7 + x2 * -0x1.994eb3774cf24p-13);
  const Doubles of_cosine = ((1.0 + x2 * -0x1.ffffffd0c621cp-2) + x4 * 0x1.55553e1068f19p-5) +
                            (x4 * x2) * (-0x1.6c087e89a359dp-10 + x2 * 0x1.99343027bf8c3p-16);
  const Bits s = same_bits<Bits>(__builtin_convertvector(of_sine, Singles));
  const Bits c = same_bits<Bits>(__builtin_convertvector(of_cosine, Singles));
  const Bits odd = same_bits<Bits>(-(quarter & 1));
  const Bits sine_sign = same_bits<Bits>(quarter & 2) << 30;
  const Bits cosine_sign = same_bits<Bits>((quarter + 1) & 2) << 30;
  sine = same_bits<Singles>(((s & ~odd) | (c & odd)) ^ sine_sign);
  cosine = same_bits<Singles>(((c & ~odd) | (s & odd)) ^ cosine_sign);
}

LOCKSTEP_INLINE Singles narrow(const Longs& bits_24) {
  return __builtin_convertvector(__builtin_convertvector(bits_24, Integers), Singles);
}

constexpr int64_t kWords = 128, kVectors = kWords / 8;  // number of words and of vectors per block

/// Generates a block that fits in the level-1 cache, in three passes. In a single pass, the
/// dependencies within a pair would prevent the processor from overlapping it with the next pair.
LOCKSTEP_INLINE void draw_words(uint64_t key, float deviation, uint64_t first, float* out) {
  Singles radius[kVectors], angle[kVectors];
  Longs counters = first + Longs{0, 1, 2, 3, 4, 5, 6, 7} + 0x9e3779b97f4a7c15ULL;
  for (int64_t i = 0; i < kVectors; ++i, counters += 8) {
    const Longs word = vector::mix(vector::mix(counters) ^ key);
    radius[i] = (narrow(word >> 40) + 0.5F) * 0x1p-24F;
    angle[i] = 2 * std::numbers::pi_v<float> * (narrow((word >> 8) & 0xffffffU) * 0x1p-24F);
  }
  for (Singles& each : radius) {
    const Singles square = -2.0F * logarithm(each);
    for (int lane = 0; lane < 8; ++lane) {
      each[lane] = std::sqrt(square[lane]);
    }
    each *= deviation;
  }
  for (int64_t i = 0; i < kVectors; ++i) {
    Singles sine, cosine;
    turn(angle[i], sine, cosine);
    vector::store(
        out + i * vector::kLanes,
        __builtin_shufflevector(
            radius[i] * cosine,
            radius[i] * sine,
            0,
            8,
            1,
            9,
            2,
            10,
            3,
            11,
            4,
            12,
            5,
            13,
            6,
            14,
            7,
            15));
  }
}

struct Normals {
  static LOCKSTEP_INLINE void run(
      uint64_t key, float deviation, int64_t begin, int64_t count, float* out) {
    for (int64_t done = 0; done < count;) {
      const int64_t odd = (begin + done) % 2;
      const auto word = static_cast<uint64_t>((begin + done) / 2);
      const int64_t some = std::min(count - done, 2 * kWords - odd);
      if (some == 2 * kWords) {
        draw_words(key, deviation, word, out + done);
      } else {
        float part[2 * kWords];
        draw_words(key, deviation, word, part);
        std::memcpy(out + done, part + odd, static_cast<size_t>(some) * sizeof(float));
      }
      done += some;
    }
  }
};

}  // namespace

void draw_normal(uint64_t key, float deviation, int64_t begin, int64_t count, float* out) {
  vector::dispatch<Normals>(key, deviation, begin, count, out);
}

}  // namespace lockstep::ops
