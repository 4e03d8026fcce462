// Norm kernels, executed on a CPU (on_cpu.h), compared with float64 references.
#include "cuda/norms.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::cuda {
namespace norms_test {

constexpr float kEps = 1e-5F;

template <class T>
std::vector<T> random_numbers(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<T> numbers(count);
  for (T& number : numbers) {
    narrow(normal(generator), number);
  }
  return numbers;
}

template <class T>
struct Given {
  std::vector<T> x, residual, weight, bias, dy, dsum;
  size_t rows, size;
  std::optional<ops::RmsForm> form;  // nullopt: a layer norm
  Given(size_t row_count, size_t width, std::optional<ops::RmsForm> how)
      : x(random_numbers<T>(row_count * width, 1)),
        residual(random_numbers<T>(row_count * width, 2)),
        weight(random_numbers<T>(width, 3)),
        bias(random_numbers<T>(width, 6)),
        dy(random_numbers<T>(row_count * width, 4)),
        dsum(random_numbers<T>(row_count * width, 5)),
        rows(row_count),
        size(width),
        form(how) {}

  /// Returns an element of the norm's input, rounded to the type.
  double in(size_t i, bool adds) const {
    T held;
    narrow(adds ? widen(x[i]) + widen(residual[i]) : widen(x[i]), held);
    return widen(held);
  }
  double factor(size_t column) const {
    return widen(weight[column]) + (form == ops::RmsForm::kAroundOne ? 1.0 : 0.0);
  }
  double multiplied(double normal) const {
    T held;
    narrow(static_cast<float>(normal), held);
    return form == ops::RmsForm::kRounded ? widen(held) : normal;
  }
};

/// Compares forward and backward pass with float64 sums.
template <class T>
void expect_norm(Number number, const Given<T>& given, bool adds, double tolerance) {
  const size_t rows = given.rows, size = given.size, count = rows * size;
  const bool is_centered = !given.form;
  std::vector<T> sum(count), y(count), dx(count), dweight(size), dbias(size);
  std::vector<float> means(rows), inverse(rows),
      runs(2 * size * static_cast<size_t>(runs_of_norm(int64_t(rows), int64_t(size * sizeof(T)))));
  const Norm norm{
      .x = given.x.data(),
      .residual = adds ? given.residual.data() : nullptr,
      .weight = given.weight.data(),
      .bias = is_centered ? given.bias.data() : nullptr,
      .sum = adds ? sum.data() : nullptr,
      .y = y.data(),
      .mean = is_centered ? means.data() : nullptr,
      .inverse = inverse.data(),
      .rows = static_cast<int64_t>(rows),
      .size = static_cast<int64_t>(size),
      .eps = kEps,
      .form = given.form.value_or(ops::RmsForm::kRounded)};
  normalize(number, norm, nullptr);
  const NormBackward back{
      .gradient = given.dy.data(),
      .sum_gradient = adds ? given.dsum.data() : nullptr,
      .x = adds ? sum.data() : given.x.data(),
      .weight = given.weight.data(),
      .mean = norm.mean,
      .inverse = inverse.data(),
      .x_gradient = dx.data(),
      .runs = runs.data(),
      .weight_gradient = dweight.data(),
      .bias_gradient = is_centered ? dbias.data() : nullptr,
      .rows = norm.rows,
      .size = norm.size,
      .form = norm.form};
  normalize_backward(number, back, nullptr);
  std::vector<double> of_weight(size), of_bias(size);
  const auto expect = [&](T found, double wanted, size_t i) {
    ASSERT_NEAR(widen(found), wanted, tolerance * (1 + std::abs(wanted))) << i;
  };
  for (size_t row = 0; row < rows; ++row) {
    double middle = 0, squares = 0, products = 0, gradients = 0;
    for (size_t c = 0; c < size && is_centered; ++c) {
      middle += given.in(row * size + c, adds) / static_cast<double>(size);
    }
    for (size_t c = 0; c < size; ++c) {
      const double distance = given.in(row * size + c, adds) - middle;
      squares += distance * distance;
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + kEps);
    ASSERT_NEAR(inverse[row], scale, 1e-5 * scale) << row;
    for (size_t c = 0; c < size; ++c) {
      const size_t i = row * size + c;
      const double normal = (given.in(i, adds) - middle) * scale, g = widen(given.dy[i]);
      products += g * given.factor(c) * normal;
      gradients += is_centered ? g * given.factor(c) : 0;
      of_weight[c] += g * given.multiplied(normal);
      of_bias[c] += g;
      expect(
          y[i],
          given.multiplied(normal) * given.factor(c) + (is_centered ? widen(given.bias[c]) : 0),
          i);
      ASSERT_TRUE(!adds || widen(sum[i]) == given.in(i, true)) << i;
    }
    const double mean = products / static_cast<double>(size);
    const double mean_gradient = gradients / static_cast<double>(size);
    for (size_t c = 0; c < size; ++c) {
      const size_t i = row * size + c;
      const double normal = (given.in(i, adds) - middle) * scale;
      const double of_norm =
          (widen(given.dy[i]) * given.factor(c) - mean_gradient - normal * mean) * scale;
      expect(dx[i], of_norm + (adds ? widen(given.dsum[i]) : 0), i);
    }
  }
  for (size_t c = 0; c < size; ++c) {
    expect(dweight[c], of_weight[c], c);
    expect(dbias[c], is_centered ? of_bias[c] : 0, c);
  }
}

template <class T>
void expect_forms(Number number, size_t rows, size_t size, double tolerance) {
  const std::vector<std::optional<ops::RmsForm>> forms{
      ops::RmsForm::kRounded, ops::RmsForm::kExact, ops::RmsForm::kAroundOne, std::nullopt};
  for (const auto form : forms) {
    const Given<T> given(rows, size, form);
    for (const bool adds : {false, true}) {
      expect_norm(number, given, adds, tolerance);
    }
  }
}

TEST(Norms, AreTheirFormulaForwardAndBackward) {
  expect_forms<float>(Number::kFloat, 3, 40, 1e-5);              // less than a warp
  expect_forms<__nv_bfloat16>(Number::kBfloat16, 3, 520, 0.02);  // 65 packs: three warps
  expect_forms<__half>(Number::kHalf, 2, 64, 3e-3);
  const Given<float> wide(2, 6000, ops::RmsForm::kExact);  // three packs per thread
  expect_norm(Number::kFloat, wide, true, 1e-5);
  const Given<__nv_bfloat16> wider(1, 8192, ops::RmsForm::kRounded);  // two packs per thread
  expect_norm(Number::kBfloat16, wider, true, 0.02);
  expect_norm(Number::kBfloat16, Given<__nv_bfloat16>(1, 8192, std::nullopt), true, 0.02);
}

TEST(Norms, SumsOfMoreRowsThanRunsAreWhole) {
  expect_norm(Number::kFloat, Given<float>(1100, 8, ops::RmsForm::kRounded), /*adds=*/true, 2e-5);
  expect_norm(Number::kFloat, Given<float>(1100, 8, std::nullopt), /*adds=*/true, 2e-5);
}

TEST(Norms, TakeRowsThatThreadsHold) {
  for (const bool is_centered : {false, true}) {
    const int64_t most = is_centered ? 16384 : 32768;
    EXPECT_TRUE(takes_norm_rows(16, is_centered));
    EXPECT_TRUE(takes_norm_rows(most, is_centered));
    EXPECT_FALSE(takes_norm_rows(most + 16, is_centered));
    EXPECT_FALSE(takes_norm_rows(24, is_centered));
    EXPECT_FALSE(takes_norm_rows(0, is_centered));
  }
}

}  // namespace norms_test
}  // namespace lockstep::cuda
