// The loops of row_loops.h as a template over a processor's registers. Each file that includes this
// header is compiled for its own instruction set with its own `Registers`, so that no code is
// shared between them.
#pragma once

#include "ops/cpu/row_loops.h"

namespace lockstep::ops::kernel {

/// `Registers` must provide: kLanes, Numbers, Table; load() of kLanes floats, bfloat16 (as bits) or
/// bytes, zero(), store() of floats, splat(), multiply_add(a, b, c) = a b + c, sum() of all lanes;
/// table_of(16 floats), Codes, load_codes() of kLanes words, look_up(table, codes, shift) of four
/// bits of each word.
template <class Registers>
struct RowLoopsOf {
  using Numbers = typename Registers::Numbers;
  static constexpr int kLanes = Registers::kLanes;

  static float widen(float value) { return value; }
  static float widen(int8_t value) { return value; }
  static float widen(uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }

  /// Prefetches the weight `bytes` ahead, because hardware prefetchers stop at page boundaries.
  static void expect(const void* from, int64_t bytes) {
    __builtin_prefetch(static_cast<const char*>(from) + bytes);
  }
  static constexpr int64_t kAhead = 2048;  // number of bytes, chosen by measurement

  template <int kRows, class Weight>
  static void dot(const Weight* weight, const FewRows& rows, float* out) {
    constexpr int kSums =
        4 / kRows + 1;  // number of independent sums, which hide the latency of a multiply-add
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
        expect(weight + at, kAhead);
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

  /// Computes the products of kWeights rows of codes, which share the loads of x.
  template <int kRows, int kWeights>
  static void dot_coded(const CodedRow* weights, const FewRows& rows, float* out) {
    const auto table = Registers::table_of(weights->values);
    const float* const x = rows.data;
    const int64_t width = rows.width, block = weights->block;
    Numbers sums[kWeights][kRows], of_block[kWeights][kRows];
#pragma GCC unroll 8
    for (int w = 0; w < kWeights; ++w) {
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        sums[w][row] = Registers::zero();
      }
    }
    int64_t number = 0;
    for (int64_t begin = 0; begin < width; begin += block, ++number) {
      const int64_t end = begin + block < width ? begin + block : width;
#pragma GCC unroll 8
      for (int w = 0; w < kWeights; ++w) {
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          of_block[w][row] = Registers::zero();
        }
      }
      for (int64_t at = begin; at < end; at += kCodesAtOnce) {
#pragma GCC unroll 8
        for (int w = 0; w < kWeights; ++w) {
          expect(weights[w].codes + at / 2, kAhead);
        }
#pragma GCC unroll 8
        for (int lane = 0; lane < 16; lane += kLanes) {
          typename Registers::Codes words[kWeights];
#pragma GCC unroll 8
          for (int w = 0; w < kWeights; ++w) {
            words[w] = Registers::load_codes(weights[w].codes + at / 2 + 2 * lane);
          }
#pragma GCC unroll 8
          for (int place = 0; place < 4; ++place) {
            Numbers numbers[kWeights];
#pragma GCC unroll 8
            for (int w = 0; w < kWeights; ++w) {
              numbers[w] = Registers::look_up(table, words[w], 4 * place);
            }
#pragma GCC unroll 8
            for (int row = 0; row < kRows; ++row) {
              const Numbers of_x = Registers::load(x + row * width + at + 16 * place + lane);
#pragma GCC unroll 8
              for (int w = 0; w < kWeights; ++w) {
                of_block[w][row] = Registers::multiply_add(numbers[w], of_x, of_block[w][row]);
              }
            }
          }
        }
      }
#pragma GCC unroll 8
      for (int w = 0; w < kWeights; ++w) {
        const Numbers scale = Registers::splat(weights[w].scales[number]);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          sums[w][row] = Registers::multiply_add(of_block[w][row], scale, sums[w][row]);
        }
      }
    }
    for (int w = 0; w < kWeights; ++w) {
      for (int row = 0; row < kRows; ++row) {
        out[w * kFewRows + row] = Registers::sum(sums[w][row]);
      }
    }
  }

  /// Adds the products of kDepth rows of the weight, starting at row `i`. The sums are read and
  /// written once.
  template <int kRows, int kDepth>
  static void add_depth(const WeightColumns& weight, const FewRows& rows, int64_t i, float* out) {
    const uint16_t* const begin = weight.data + i * weight.stride;
    const float* const x = rows.data + i;
    Numbers factors[kRows][kDepth];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int k = 0; k < kDepth; ++k) {
        factors[row][k] = Registers::splat(x[row * rows.width + k]);
      }
    }
    int64_t j = 0;
    for (; j + kLanes <= weight.count; j += kLanes) {
      Numbers sums[kRows];
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        sums[row] = Registers::load(out + row * weight.count + j);
      }
#pragma GCC unroll 8
      for (int k = 0; k < kDepth; ++k) {
        const uint16_t* const at = begin + k * weight.stride + j;
        expect(at, kDepth * weight.stride * static_cast<int64_t>(sizeof(*at)));
        const Numbers numbers = Registers::load(at);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          sums[row] = Registers::multiply_add(numbers, factors[row][k], sums[row]);
        }
      }
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        Registers::store(out + row * weight.count + j, sums[row]);
      }
    }
    for (; j < weight.count; ++j) {
      for (int k = 0; k < kDepth; ++k) {
        for (int row = 0; row < kRows; ++row) {
          out[row * weight.count + j] +=
              widen(begin[k * weight.stride + j]) * x[row * rows.width + k];
        }
      }
    }
  }

  template <int kRows>
  static void sum_columns(const WeightColumns& weight, const FewRows& rows, float* out) {
    constexpr int kDepth = 8 / kRows;
    for (int64_t i = 0; i < kRows * weight.count; ++i) {
      out[i] = 0;
    }
    int64_t i = 0;
    for (; i + kDepth <= rows.width; i += kDepth) {
      add_depth<kRows, kDepth>(weight, rows, i, out);
    }
    for (; i < rows.width; ++i) {
      add_depth<kRows, 1>(weight, rows, i, out);
    }
  }

  static void sum_any_columns(const WeightColumns& weight, const FewRows& rows, float* out) {
    switch (rows.count) {
      case 1:
        return sum_columns<1>(weight, rows, out);
      case 2:
        return sum_columns<2>(weight, rows, out);
      case 3:
        return sum_columns<3>(weight, rows, out);
      default:
        return sum_columns<4>(weight, rows, out);
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

  static void dot_any_coded(const CodedRow* weights, const FewRows& rows, float* out) {
    static_assert(kCodedRows == 2);
    switch (rows.count) {
      case 1:
        return dot_coded<1, 2>(weights, rows, out);
      case 2:
        return dot_coded<2, 2>(weights, rows, out);
      case 3:
        dot_coded<3, 1>(weights, rows, out);
        return dot_coded<3, 1>(weights + 1, rows, out + kFewRows);
      default:
        dot_coded<4, 1>(weights, rows, out);
        return dot_coded<4, 1>(weights + 1, rows, out + kFewRows);
    }
  }

  static constexpr RowLoops all() {
    return {dot_any<float>, dot_any<uint16_t>, dot_any<int8_t>, dot_any_coded, sum_any_columns};
  }
};

}  // namespace lockstep::ops::kernel
