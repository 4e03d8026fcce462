// CUDA kernels, executed on a CPU (on_cpu.h), compared with float64 references.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/counter_random.h"
#include "cuda/adamw.h"
#include "cuda/dropout.h"
#include "cuda/float8.h"
#include "cuda/rope.h"
#include "cuda/scale.h"
#include "cuda/softmax_rows.h"
#include "cuda/squares.h"
#include "cuda/swiglu.h"
#include "cuda/unpack.h"
#include "ops/square_sums.h"

namespace lockstep::cuda {
namespace kernels_test {

std::vector<float> random_numbers(size_t count, unsigned seed, float spread = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = normal(generator);
  }
  return numbers;
}

template <class T>
T narrowed(float x) {
  T result;
  narrow(x, result);
  return result;
}
template <class T>
std::vector<T> all_narrowed(const std::vector<float>& numbers) {
  std::vector<T> result;
  for (const float number : numbers) {
    result.push_back(narrowed<T>(number));
  }
  return result;
}

/// Starts at `offset`: pack loads are used only if the start is aligned.
void expect_adamw(bool is_low, size_t offset) {
  constexpr size_t kCount = 1502;  // the last block and the last pack are partial
  const std::vector<float> numbers{0.5F, 0.999F, 0.9F, 0.1F, 0.99F, 0.01F, 1e-3F, 2.0F, 1e-6F};
  const auto gradient = random_numbers(kCount, 1), weight = random_numbers(kCount, 2);
  const auto m = random_numbers(kCount, 3);
  auto v = random_numbers(kCount, 4);
  for (float& x : v) {
    x *= x;
  }
  const auto low_gradient = all_narrowed<__nv_bfloat16>(gradient);
  auto new_weight = weight, new_m = m, new_v = v;
  std::vector<__nv_bfloat16> low(kCount);
  AdamWPointers pointers;
  pointers.gradient = is_low ? nullptr : gradient.data() + offset;
  pointers.low_gradient = is_low ? low_gradient.data() + offset : nullptr;
  pointers.weight = new_weight.data() + offset;
  pointers.exp_avg = new_m.data() + offset;
  pointers.exp_avg_sq = new_v.data() + offset;
  pointers.low = is_low ? low.data() + offset : nullptr;
  adamw(pointers, numbers.data(), static_cast<int64_t>(kCount - offset), nullptr);
  for (size_t i = offset; i < kCount; ++i) {
    const double g = 0.5 * (is_low ? widen(low_gradient[i]) : gradient[i]);
    const double mean = 0.9 * m[i] + 0.1 * g, square = 0.99 * v[i] + 0.01 * g * g;
    const double expected = 0.999 * weight[i] - 1e-3 * mean / (std::sqrt(square) * 2 + 1e-6);
    ASSERT_NEAR(new_m[i], mean, 1e-6) << i;
    ASSERT_NEAR(new_v[i], square, 1e-6) << i;
    ASSERT_NEAR(new_weight[i], expected, 1e-6 * (1 + std::abs(expected))) << i;
    ASSERT_TRUE(!is_low || widen(low[i]) == widen(__float2bfloat16(new_weight[i]))) << i;
  }
  EXPECT_TRUE(offset == 0 || new_weight[0] == weight[0]);
}

TEST(Kernels, AdamWIsItsFormula) {
  for (const size_t offset : {0, 1}) {
    expect_adamw(false, offset);
    expect_adamw(true, offset);
  }
}

template <class T>
void expect_rows(Number number, size_t size, size_t gap) {
  constexpr size_t kRows = 4;
  const size_t stride = size + gap;
  auto logits = all_narrowed<T>(random_numbers(kRows * stride, 5, 3));
  logits[stride + 1] = narrowed<T>(-INFINITY);  // a masked token
  const std::vector<int64_t> targets{0, static_cast<int64_t>(size) - 1, -100, 3};
  std::vector<float> maximum(kRows), total(kRows), of_target(kRows);
  row_statistics(
      number,
      logits.data(),
      targets.data(),
      kRows,
      static_cast<int64_t>(size),
      static_cast<int64_t>(stride),
      maximum.data(),
      total.data(),
      of_target.data(),
      nullptr);
  std::vector<float> log_sum(kRows), softmax_factor(kRows), target_factor(kRows);
  for (size_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      sum += std::exp(static_cast<double>(widen(logits[row * stride + i])));
    }
    EXPECT_NEAR(maximum[row] + std::log(total[row]), std::log(sum), 1e-5) << row;
    const bool counts = targets[row] >= 0;
    const size_t at = row * stride + static_cast<size_t>(counts ? targets[row] : 0);
    EXPECT_EQ(of_target[row], counts ? widen(logits[at]) : 0);
    log_sum[row] = static_cast<float>(std::log(sum));
    softmax_factor[row] = counts ? 0.5F + static_cast<float>(row) : 0;
    target_factor[row] = counts ? 0.25F : 0;
  }
  const auto before = logits;
  constexpr float kInverseCap = 0.02F;
  logits_become_gradient(
      number,
      logits.data(),
      targets.data(),
      kRows,
      static_cast<int64_t>(size),
      static_cast<int64_t>(stride),
      log_sum.data(),
      softmax_factor.data(),
      target_factor.data(),
      kInverseCap,
      nullptr);
  const double limit = sizeof(T) == 4 ? 1e-5 : 1e-2;
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t row = i / stride;
    if (i % stride >= size) {
      ASSERT_EQ(widen(logits[i]), widen(before[i])) << i;  // padding between rows is unchanged
      continue;
    }
    const double logit = widen(before[i]), t = logit * kInverseCap;
    const double p =
        softmax_factor[row] == 0 ? 0 : std::exp(logit - log_sum[row]) * softmax_factor[row];
    const bool is_target = static_cast<int64_t>(i % stride) == targets[row];
    const double expected =
        std::isinf(logit) ? 0 : (p - (is_target ? target_factor[row] : 0)) * (1 - t * t);
    if (!std::isinf(logit)) {
      ASSERT_NEAR(widen(logits[i]), expected, limit) << i;
    }
  }
}

/// A part of 5 rows of a matrix with 70 columns, in two runs, and its columns from 13 on: random
/// bytes, rows with an odd number of codes, and row boundaries inside blocks.
template <class T>
void expect_unpacked(Number number, Number packed, bool has_8_bits, bool is_nested) {
  ops::UnpackPlace place;
  place.has_8_bits = has_8_bits;
  place.is_nested = is_nested;
  place.in = 70;
  place.part_column = 13;
  place.block_size = 16;
  place.row_bytes = has_8_bits ? 57 : 29;
  place.scales_per_row = 5;
  place.nested_scales = 1200;
  place.codes = 1280;
  place.scales = place.codes + (5 * place.row_bytes + 15) / 16 * 16;
  place.first_row = 1;
  place.rows = 4;
  place.first_column = 3;
  place.columns = 54;
  std::fill(place.range_row + 2, place.range_row + ops::UnpackPlace::kMostRanges, INT64_MAX);
  place.range_row[1] = 2;
  place.range_shift[0] = 4;
  place.range_shift[1] = 9;
  std::vector<float> floats = random_numbers(600, 9);
  auto* bytes = reinterpret_cast<uint8_t*>(floats.data());
  std::mt19937 generator(3);
  for (int64_t i = place.codes; i < place.codes + 5 * place.row_bytes; ++i) {
    bytes[i] = static_cast<uint8_t>(generator());
  }
  if (is_nested) {
    for (int64_t i = place.scales; i < place.scales + 25; ++i) {
      bytes[i] = static_cast<uint8_t>(generator());
    }
  } else if (!has_8_bits) {
    const auto scales = random_numbers(25, 11);
    std::copy(scales.begin(), scales.end(), floats.begin() + place.scales / 4);
  }
  std::vector<T> out(static_cast<size_t>(place.rows * place.columns));
  unpack(number, packed, bytes, place, out.data(), nullptr);
  for (int64_t i = 0; i < place.rows; ++i) {
    for (int64_t j = 0; j < place.columns; ++j) {
      float value = place.value(floats.data(), bytes, i, j);
      if (!has_8_bits && packed == Number::kBfloat16) {
        value = widen(__float2bfloat16(value));
      }
      const T expected = narrowed<T>(value);
      ASSERT_EQ(widen(out[static_cast<size_t>(i * place.columns + j)]), widen(expected))
          << i << ' ' << j;
    }
  }
}

TEST(Kernels, PackedRowsAreReadAsTheirPlacesSay) {
  for (const bool is_nested : {false, true}) {
    expect_unpacked<float>(Number::kFloat, Number::kFloat, false, is_nested);
    expect_unpacked<float>(Number::kFloat, Number::kBfloat16, false, is_nested);
    expect_unpacked<__half>(Number::kHalf, Number::kBfloat16, false, is_nested);
    expect_unpacked<__nv_bfloat16>(Number::kBfloat16, Number::kFloat, false, is_nested);
  }
  expect_unpacked<__nv_bfloat16>(Number::kBfloat16, Number::kFloat, true, false);
  expect_unpacked<float>(Number::kFloat, Number::kFloat, true, false);
}

TEST(Kernels, RowsOfLogitsAreThoseOfFloat64) {
  for (const size_t size : {5U, 700U, 4609U}) {  // less than a warp; several values per thread
    expect_rows<float>(Number::kFloat, size, 0);
    expect_rows<__nv_bfloat16>(Number::kBfloat16, size, 3);
    expect_rows<__half>(Number::kHalf, size, 64 - size % 64);
  }
  expect_rows<__nv_bfloat16>(
      Number::kBfloat16, 17411, 64 - 17411 % 64);  // several packs per thread
}

/// NaN propagates, because the step guard depends on it.
TEST(Kernels, ANotANumberStays) {
  std::vector<float> logits = random_numbers(600, 6);
  logits[37] = NAN;
  const int64_t target = 2;
  float maximum = 0, total = 0, of_target = 0;
  row_statistics(
      Number::kFloat, logits.data(), &target, 1, 600, 600, &maximum, &total, &of_target, nullptr);
  EXPECT_TRUE(std::isnan(total));
}

/// Rotates from strided rows into dense ones, and back.
template <class T>
void expect_rotation(Number number, int64_t count, int64_t size, int64_t half, int64_t far) {
  constexpr int64_t kRows = 2, kLength = 3;
  const auto numbers = all_narrowed<T>(random_numbers(static_cast<size_t>(kRows * far), 9));
  const auto angles = random_numbers(static_cast<size_t>(kLength * half), 10);
  std::vector<float> cos, sin;
  for (const float angle : angles) {
    cos.push_back(std::cos(angle));
    sin.push_back(std::sin(angle));
  }
  std::vector<T> to(static_cast<size_t>(kRows * kLength * count * size)), back(numbers.size());
  ops::RotatedHeads heads{kRows, kLength, count, size, half, /*angles_by_row=*/false};
  const std::vector<int64_t> apart{far, count * size, size};
  const std::vector<int64_t> dense{kLength * count * size, count * size, size};
  std::copy(apart.begin(), apart.end(), heads.from_stride);
  std::copy(dense.begin(), dense.end(), heads.to_stride);
  rotate(number, numbers.data(), to.data(), cos.data(), sin.data(), 1, heads, nullptr);
  std::swap(heads.from_stride, heads.to_stride);
  rotate(number, to.data(), back.data(), cos.data(), sin.data(), -1, heads, nullptr);
  const double limit = sizeof(T) == 4 ? 1e-6 : 0.02;
  for (int64_t n = 0; n < kRows * kLength * count; ++n) {
    const int64_t row = n / (kLength * count), position = n / count % kLength;
    const int64_t at = row * far + n % (kLength * count) * size;
    for (int64_t i = 0; i < size; ++i) {
      const auto in = [&](int64_t k) -> double {
        return widen(numbers[static_cast<size_t>(at + k)]);
      };
      const double angle =
          i < 2 * half ? angles[static_cast<size_t>(position * half + i % half)] : 0;
      const double expected = i < half ? in(i)*std::cos(angle) - in(i + half) * std::sin(angle)
                              : i < 2 * half
                                  ? in(i)*std::cos(angle) + in(i - half) * std::sin(angle)
                                  : in(i);
      ASSERT_NEAR(widen(to[static_cast<size_t>(n * size + i)]), expected, limit) << n << " " << i;
      ASSERT_NEAR(widen(back[static_cast<size_t>(at + i)]), in(i), 2 * limit) << n << " " << i;
    }
  }
}

TEST(Kernels, RopeTurnsAndTurnsBack) {
  expect_rotation<float>(Number::kFloat, 2, 7, 3, 100);  // one value after the pairs
  expect_rotation<__nv_bfloat16>(
      Number::kBfloat16, 5, 40, 16, 640);  // packs, some of them after the pairs
  expect_rotation<__nv_bfloat16>(
      Number::kBfloat16, 5, 40, 16, 641);  // rows that are not aligned for packs
  expect_rotation<__half>(
      Number::kHalf, 40, 128, 64, 16000);  // more packs than a block has threads
}

/// A slice [2, 3, 4] of a whole [2, 5, 9] drops the same elements as the whole.
TEST(Kernels, DropoutIsThatOfTheWhole) {
  const ops::DropoutPlace place{.dims = 2, .size = {3, 4}, .begin = {1, 5}, .whole = {5, 9}};
  const std::vector<float> from = random_numbers(24, 8);
  const std::vector<int64_t> keys{7, -11};
  constexpr uint32_t kThreshold = 0x50000000;
  std::vector<float> to(24, -1);
  dropout(
      Number::kFloat,
      from.data(),
      to.data(),
      24,
      keys.data(),
      12,
      place,
      kThreshold,
      1.5F,
      nullptr);
  int kept = 0;
  for (uint64_t i = 0; i < 24; ++i) {
    const uint64_t element = (i % 12 / 4 + 1) * 9 + i % 4 + 5;
    const uint64_t word = random_bits(static_cast<uint64_t>(keys[i / 12]), element / 2);
    const bool is_kept = (element % 2 == 0 ? word & 0xffffffffU : word >> 32) >= kThreshold;
    kept += is_kept ? 1 : 0;
    EXPECT_EQ(to[i], is_kept ? from[i] * 1.5F : 0) << i;
  }
  EXPECT_GT(kept, 8);
  EXPECT_LT(kept, 24);
}

template <class T>
void expect_swiglu(Number number, double tolerance, size_t offset) {
  constexpr size_t kCount = 603;
  const auto gate = all_narrowed<T>(random_numbers(kCount, 9, 4));
  const auto up = all_narrowed<T>(random_numbers(kCount, 10)),
             dy = all_narrowed<T>(random_numbers(kCount, 11));
  std::vector<T> out(kCount), gate_gradient(kCount), up_gradient(kCount);
  const auto count = static_cast<int64_t>(kCount - offset);
  swiglu(number, gate.data() + offset, up.data() + offset, out.data() + offset, count, nullptr);
  swiglu_backward(
      number,
      gate.data() + offset,
      up.data() + offset,
      dy.data() + offset,
      gate_gradient.data() + offset,
      up_gradient.data() + offset,
      count,
      nullptr);
  for (size_t i = offset; i < kCount; ++i) {
    const double g = widen(gate[i]), u = widen(up[i]), d = widen(dy[i]);
    const double s = 1 / (1 + std::exp(-g));
    const auto expect = [&](T found, double wanted) {
      EXPECT_NEAR(widen(found), wanted, tolerance * (1e-3 + std::abs(wanted))) << i;
    };
    expect(out[i], g * s * u);
    expect(up_gradient[i], d * g * s);
    expect(gate_gradient[i], d * u * s * (1 + g * (1 - s)));
  }
}

TEST(Kernels, SwigluIsItsFormula) {
  for (const size_t offset : {0, 1}) {  // with packs, and with single values
    expect_swiglu<float>(Number::kFloat, 1e-5, offset);
    expect_swiglu<__nv_bfloat16>(Number::kBfloat16, 0.01, offset);
    expect_swiglu<__half>(Number::kHalf, 2e-3, offset);
  }
}

TEST(Kernels, NumbersTimesAFactorWhichMayBeOne) {
  for (const size_t offset : {0, 1}) {  // with packs, and with single values
    const auto from = all_narrowed<__nv_bfloat16>(random_numbers(1003, 3));
    for (const float factor : {0.3F, 1.0F}) {
      auto to = from;
      scale(Number::kBfloat16, to.data() + offset, 1003 - int64_t(offset), &factor, nullptr);
      for (size_t i = 0; i < to.size(); ++i) {
        const float wanted = i < offset ? widen(from[i]) : widen(from[i]) * factor;
        ASSERT_EQ(widen(to[i]), widen(narrowed<__nv_bfloat16>(wanted))) << i;
      }
    }
  }
}

TEST(Kernels, SquaresAreAddedToWhatIsThere) {
  // Each thread of every block has eight packs; threads of some blocks have a ninth, and some have
  // one more value. Also tested unaligned.
  constexpr size_t kCount = size_t{ops::kSquareSums} * 256 * 4 * 33 / 4 + 3;
  const auto from = random_numbers(kCount, 12);
  for (const size_t offset : {0, 1}) {
    std::vector<double> sums(ops::kSquareSums, 0.0);
    sums[3] = 1000;
    const size_t end = offset == 0 ? kCount : kCount / 8;  // the slow path is tested on less data
    add_squares(
        Number::kFloat,
        from.data() + offset,
        static_cast<int64_t>(end - offset),
        0.5,
        sums.data(),
        nullptr);
    double wanted = 1000;
    for (size_t i = offset; i < end; ++i) {
      wanted += 0.5 * from[i] * from[i];
    }
    EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), wanted, 1e-7 * wanted);
  }
  std::vector<double> sums(ops::kSquareSums, 0.0);
  const auto low = all_narrowed<__nv_bfloat16>({3, NAN});
  const double before = sums[0];
  add_squares(Number::kBfloat16, low.data(), 1, 1, sums.data(), nullptr);
  EXPECT_NEAR(sums[0], before + 9, 1e-9);
  add_squares(Number::kBfloat16, low.data(), 2, 1, sums.data(), nullptr);
  EXPECT_TRUE(std::isnan(sums[0]));
}

/// Returns the value of an e4m3 or e5m2 code.
double number_of(uint8_t code, bool has_e5m2) {
  const int fraction_bits = has_e5m2 ? 2 : 3, bias = has_e5m2 ? 15 : 7;
  const int exponent = (code & 0x7F) >> fraction_bits;
  const double fraction = std::ldexp(code & ((1 << fraction_bits) - 1), -fraction_bits);
  const double number =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (code & 0x80) != 0 ? -number : number;
}

struct Matrix {
  int64_t rows, columns;
};
struct Float8Case {
  bool has_e5m2, is_by_row, reads_columns, writes_columns;
};

/// Input and output are along rows or columns.
void expect_float8(const Matrix& size, const Float8Case& how) {
  const auto [rows, columns] = size;
  const auto [has_e5m2, is_by_row, reads_columns, writes_columns] = how;
  const auto count = static_cast<size_t>(rows * columns);
  const auto numbers = all_narrowed<__nv_bfloat16>(random_numbers(count, 11, 3));
  std::vector<float> factors;
  for (int64_t column = 0; column < columns; ++column) {
    factors.push_back(std::ldexp(1.0F, static_cast<int>(column % 5) - 2));
  }
  FactoredRows in;
  in.from = numbers.data();
  in.rows = rows;
  in.columns = columns;
  in.row_stride = reads_columns ? 1 : columns;
  in.column_stride = reads_columns ? rows : 1;
  in.factors = factors.data();
  in.factor_of_column = 1;
  const auto number_at = [&](int64_t row, int64_t column) {
    const auto at = static_cast<size_t>(row * in.row_stride + column * in.column_stride);
    return static_cast<double>(widen(numbers[at])) * factors[static_cast<size_t>(column)];
  };
  std::vector<float> largest(static_cast<size_t>(rows)), scales(largest.size());
  largest_of_rows(in, largest.data(), nullptr);
  for (int64_t row = 0; row < rows; ++row) {
    double most = 0;
    for (int64_t column = 0; column < columns; ++column) {
      most = std::max(most, std::abs(number_at(row, column)));
    }
    ASSERT_EQ(largest[static_cast<size_t>(row)], most) << row;
  }
  if (!is_by_row) {
    largest[0] = *std::max_element(largest.begin(), largest.end());
  }
  std::vector<uint8_t> values(count);
  Float8Out out;
  out.values = values.data();
  out.row_stride = writes_columns ? 1 : columns;
  out.column_stride = writes_columns ? rows : 1;
  out.scales = scales.data();
  out.has_e5m2 = has_e5m2;
  out.is_by_row = is_by_row;
  round_to_float8(in, largest.data(), out, nullptr);
  const double top = has_e5m2 ? 57344 : 448;
  for (int64_t row = 0; row < rows; ++row) {
    const auto of_row = static_cast<size_t>(is_by_row ? row : 0);
    const double scale = scales[of_row];
    ASSERT_TRUE(largest[of_row] / scale <= top && largest[of_row] / scale > top / 2);
    for (int64_t column = 0; column < columns; ++column) {
      const double x = number_at(row, column) / scale;
      const int exponent = x == 0 ? 0 : std::max(std::ilogb(x), has_e5m2 ? -14 : -6);
      const double step = std::ldexp(1.0, exponent - (has_e5m2 ? 2 : 3));
      const auto at = static_cast<size_t>(row * out.row_stride + column * out.column_stride);
      ASSERT_EQ(number_of(values[at], has_e5m2), std::nearbyint(x / step) * step) << x;
    }
  }
}

TEST(Kernels, EightBitNumbersAreTheNearestWithTheLeastScale) {
  // Whole tiles and partial ones; sizes that no tile or pack divides; one row; one column.
  for (const Matrix& size : {Matrix{136, 520}, {45, 70}, {1, 40}, {33, 1}}) {
    for (const bool has_e5m2 : {false, true}) {
      for (const bool reads_columns : {false, true}) {
        for (const bool writes_columns : {false, true}) {
          expect_float8(size, {has_e5m2, !reads_columns, reads_columns, writes_columns});
          expect_float8(size, {has_e5m2, reads_columns, reads_columns, writes_columns});
        }
      }
    }
  }
}

TEST(Kernels, OfEightBitNumbersWhatIsNotFiniteStaysSo) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto numbers = all_narrowed<__nv_bfloat16>({1, INFINITY, 0, nan, 2, 3});
  FactoredRows in;
  in.from = numbers.data();
  in.rows = 3;
  in.columns = in.row_stride = 2;
  std::vector<float> largest(3), scales(3);
  largest_of_rows(in, largest.data(), nullptr);
  EXPECT_EQ(largest[0], INFINITY);
  EXPECT_TRUE(std::isnan(largest[1]));
  EXPECT_EQ(largest[2], 3);
  std::vector<uint8_t> values(6);
  Float8Out out;
  out.values = values.data();
  out.row_stride = 2;
  out.scales = scales.data();
  out.is_by_row = true;
  round_to_float8(in, largest.data(), out, nullptr);
  EXPECT_EQ(values[1] & 0x7F, 0x7F);
  EXPECT_EQ(values[3] & 0x7F, 0x7F);
  EXPECT_EQ(number_of(values[4], false) * scales[2], 2);
}

}  // namespace kernels_test
}  // namespace lockstep::cuda
