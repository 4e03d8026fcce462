// The loops of row_loops.h over a processor's registers. Included by the files that are compiled
// with its instructions, each with a `Registers` of its own: nothing here is shared.
#pragma once

#include "ops/cpu/row_loops.h"

namespace lockstep::ops::kernel {

/// Registers: kLanes, Numbers, Table; load() of kLanes floats, bfloat16 (as bits) or bytes, zero(),
/// splat(), multiply_add(a, b, c) = a b + c, sum() of all lanes; table_of(16 floats), Codes,
/// load_codes() of kLanes words, look_up(table, codes, shift) of four bits of each.
template <class Registers>
struct RowLoopsOf {
  using Numbers = typename Registers::Numbers;
  static constexpr int kLanes = Registers::kLanes;

  static float widen(float value) { return value; }
  static float widen(int8_t value) { return value; }
  static float widen(uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }

  template <int kRows, class Weight>
  static void dot(const Weight* weight, const FewRows& rows, float* out) {
    constexpr int kSums = 4 / kRows + 1;  // that go on side by side: one waits for itself
    const float* const x = rows.data;
    const int64_t width = rows.width;
    Numbers sums[kRows][kSums];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int k = 0; k < kSums; ++k) {
        sums[row][k] = Registers::zero();
      }
    }
    int64_t i = 0;
    for (; i + kSums * kLanes <= width; i += kSums * kLanes) {
#pragma GCC unroll 8
      for (int k = 0; k < kSums; ++k) {
        const int64_t at = i + k * kLanes;
        const Numbers numbers = Registers::load(weight + at);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          sums[row][k] =
              Registers::multiply_add(numbers, Registers::load(x + row * width + at), sums[row][k]);
        }
      }
    }
    for (; i + kLanes <= width; i += kLanes) {
      const Numbers numbers = Registers::load(weight + i);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        sums[row][0] =
            Registers::multiply_add(numbers, Registers::load(x + row * width + i), sums[row][0]);
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int k = 1; k < kSums; ++k) {
        sums[row][0] += sums[row][k];
      }
      float sum = Registers::sum(sums[row][0]);
      for (int64_t rest = i; rest < width; ++rest) {
        sum += widen(weight[rest]) * x[row * width + rest];
      }
      out[row] = sum;
    }
  }

  template <int kRows>
  static void dot_coded(const CodedRow& weight, const FewRows& rows, float* out) {
    const auto table = Registers::table_of(weight.values);
    const float* const x = rows.data;
    const int64_t width = rows.width, block = weight.block;
    const uint8_t* codes = weight.codes;
    const float* scale = weight.scales;
    Numbers sums[kRows], of_block[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      sums[row] = Registers::zero();
    }
    for (int64_t begin = 0; begin < width; begin += block, ++scale) {
      const int64_t end = begin + block < width ? begin + block : width;
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        of_block[row] = Registers::zero();
      }
      for (int64_t at = begin; at < end; at += kCodesAtOnce, codes += kCodesAtOnce / 2) {
#pragma GCC unroll 8
        for (int lane = 0; lane < 16; lane += kLanes) {
          const auto words = Registers::load_codes(codes + 2 * lane);
#pragma GCC unroll 8
          for (int place = 0; place < 4; ++place) {
            const Numbers numbers = Registers::look_up(table, words, 4 * place);
#pragma GCC unroll 8
            for (int row = 0; row < kRows; ++row) {
              of_block[row] = Registers::multiply_add(
                  numbers,
                  Registers::load(x + row * width + at + 16 * place + lane),
                  of_block[row]);
            }
          }
        }
      }
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        sums[row] = Registers::multiply_add(of_block[row], Registers::splat(*scale), sums[row]);
      }
    }
    for (int row = 0; row < kRows; ++row) {
      out[row] = Registers::sum(sums[row]);
    }
  }

  template <class Weight>
  static void dot_any(const Weight* weight, const FewRows& rows, float* out) {
    switch (rows.count) {
      case 1:
        return dot<1>(weight, rows, out);
      case 2:
        return dot<2>(weight, rows, out);
      case 3:
        return dot<3>(weight, rows, out);
      default:
        return dot<4>(weight, rows, out);
    }
  }

  static void dot_any_coded(const CodedRow& weight, const FewRows& rows, float* out) {
    switch (rows.count) {
      case 1:
        return dot_coded<1>(weight, rows, out);
      case 2:
        return dot_coded<2>(weight, rows, out);
      case 3:
        return dot_coded<3>(weight, rows, out);
      default:
        return dot_coded<4>(weight, rows, out);
    }
  }

  static constexpr RowLoops all() {
    return {dot_any<float>, dot_any<uint16_t>, dot_any<int8_t>, dot_any_coded};
  }
};

}  // namespace lockstep::ops::kernel
