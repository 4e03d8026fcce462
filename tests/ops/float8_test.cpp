// 8-bit floating-point operands: rounding compared with a plain implementation and libtorch's,
// scales, and products in both forms.
#include "ops/float8.h"

#include <cmath>
#include <limits>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/testing.h"

namespace lockstep::ops {
namespace float8_test {

constexpr auto kE4m3 = at::kFloat8_e4m3fn, kE5m2 = at::kFloat8_e5m2;

struct Format {
  int fraction, least;  // bits of the fraction; exponent of the smallest normal number
  double largest;
};
Format format_of(at::ScalarType type) {
  return type == kE4m3 ? Format{3, -6, 448} : Format{2, -14, 57344};
}

/// Returns the nearest number of the type, ties to even, computed in float64.
double nearest(double x, const Format& format) {
  if (x == 0) {
    return 0;
  }
  const double step = std::ldexp(1, std::max(std::ilogb(x), format.least) - format.fraction);
  return std::nearbyint(x / step) * step;
}

Tensor wide(const Float8Rows& rows) {
  const Tensor values = rows.values.to(at::kDouble);
  return rows.scales.defined() ? values * rows.scales.to(at::kDouble) : values;
}

/// Returns numbers over the whole range of the type, and smaller ones.
Tensor spread(int64_t rows, int64_t columns, double smallest, int64_t seed) {
  const Tensor exponents = random({rows, columns}, seed).abs().fmod(1).mul(smallest);
  return random({rows, columns}, seed + 1) * at::pow(2.0, exponents);
}

TEST(Float8, RoundsToTheNearestNumberAsLibtorchDoes) {
  for (const auto type : {kE4m3, kE5m2}) {
    const Format format = format_of(type);
    for (const auto from : {at::kFloat, at::kBFloat16, at::kDouble}) {
      // If the largest magnitude is the type's largest number, the scale is 1.
      const Tensor x = spread(67, 31, -2 * format.fraction * 9, 3).clamp(-400, 400).to(from);
      const Float8Rows made = to_float8({x}, at::full({1, 1}, format.largest), type);
      EXPECT_EQ(made.scales.item<float>(), 1);
      const Tensor libtorchs = x.to(type);
      EXPECT_TRUE(made.values.view(at::kByte).equal(libtorchs.view(at::kByte)));
      const Tensor given = x.to(at::kDouble).flatten(), taken = wide(made).flatten();
      int64_t subnormal = 0;
      for (int64_t i = 0; i < given.numel(); ++i) {
        const double value = given[i].item<double>();
        EXPECT_EQ(taken[i].item<double>(), nearest(value, format)) << value;
        subnormal += std::abs(value) < std::ldexp(1, format.least) ? 1 : 0;
      }
      EXPECT_GT(subnormal, 20) << "none below the least exponent";
    }
  }
  // Ties round to even: 17 is between 16 and 18, 19 between 18 and 20.
  const Tensor ties = at::tensor({17.F, 19.F, -17.F, 448.F}).view({1, 4});
  const Tensor expected = at::tensor({16., 20., -16., 448.}, at::kDouble).view({1, 4});
  EXPECT_TRUE(wide(to_float8({ties}, largest_magnitudes({ties}, SharedScale::kAll), kE4m3))
                  .equal(expected));
}

TEST(Float8, AScaleIsTheLeastPowerOfTwoThatTheLargestNumberFitsWith) {
  for (const auto type : {kE4m3, kE5m2}) {
    const double top = format_of(type).largest;
    for (const double largest : {top, top * 1.0001, top / 2, top * 0.75, 1e-3, 3e-30, 7e30}) {
      const Tensor x = at::full({1, 1}, largest, at::kFloat);
      const double scale = to_float8({x}, x, type).scales.item<double>();
      EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
      EXPECT_LE(x.item<double>() / scale, top);
      EXPECT_GT(x.item<double>() / scale, top / 2);
    }
  }
}

TEST(Float8, EachRowOrAllRowsShareAScaleAndRoundAlike) {
  const Tensor x = spread(13, 29, -4, 5).to(at::kBFloat16);
  const Tensor all = largest_magnitudes({x}, SharedScale::kAll);
  const Tensor rows = largest_magnitudes({x}, SharedScale::kRow);
  EXPECT_TRUE(all.sizes().equals({1, 1}) && rows.sizes().equals({13, 1}));
  EXPECT_TRUE(all.equal(rows.amax({0}, true)));
  EXPECT_TRUE(rows.equal(x.to(at::kFloat).abs().amax({1}, true)));
  // Power-of-two scales do not change fractions, and no value here is near the types' smallest
  // numbers.
  EXPECT_TRUE(wide(to_float8({x}, all, kE5m2)).equal(wide(to_float8({x}, rows, kE5m2))));
  const auto strides = to_float8({x.t()}, largest_magnitudes({x.t()}, SharedScale::kRow), kE4m3);
  EXPECT_TRUE(strides.scales.sizes().equals({29, 1}));
}

TEST(Float8, FactorsAreMultipliedBeforeTheLargestIsLookedFor) {
  const Tensor x = random({5, 7}, 3).to(at::kFloat);
  const Tensor factors = at::pow(2.0, at::arange(7) - 3).view({1, 7}).to(at::kFloat);
  const FactoredRows factored{x, factors};
  for (const auto shared : {SharedScale::kAll, SharedScale::kRow}) {
    const Tensor plain = x * factors, largest = largest_magnitudes({plain}, shared);
    EXPECT_TRUE(largest_magnitudes(factored, shared).equal(largest));
    EXPECT_TRUE(wide(to_float8(factored, largest, kE5m2, Float8Order::kColumns))
                    .equal(wide(to_float8({plain}, largest, kE5m2))));
  }
}

TEST(Float8, WhatIsNotFiniteStaysSoAndZerosAreZeros) {
  for (const auto type : {kE4m3, kE5m2}) {
    for (const double odd : {double(INFINITY), double(-INFINITY), double(NAN)}) {
      Tensor x = at::ones({2, 3}).to(at::kBFloat16);
      x[1][2] = odd;
      for (const auto shared : {SharedScale::kAll, SharedScale::kRow}) {
        const Float8Rows made = to_float8({x}, largest_magnitudes({x}, shared), type);
        EXPECT_FALSE(wide(made)[1][2].isfinite().item<bool>()) << odd;
        const Float8Rows ones{at::ones({4, 3}).to(kE4m3), {}};
        const Tensor product = float8_product(made, ones, at::kBFloat16);
        EXPECT_FALSE(product[1].isfinite().any().item<bool>());
        EXPECT_EQ(product[0].isfinite().all().item<bool>(), true);
      }
    }
    const Tensor zeros = at::zeros({2, 3});
    const Tensor made =
        wide(to_float8({zeros}, largest_magnitudes({zeros}, SharedScale::kRow), type));
    EXPECT_TRUE(made.equal(at::zeros({2, 3}, at::kDouble)));
  }
}

/// True if libtorch's own operation runs here; oneDNN supports it on newer processors only.
bool has_operation() {
  const Tensor ones = at::ones({16, 16});
  const Float8Rows rounded =
      to_float8({ones}, largest_magnitudes({ones}, SharedScale::kAll), kE4m3);
  try {
    float8_product(rounded, rounded, at::kBFloat16, Float8Form::kOperation);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

TEST(Float8, ProductsAreThoseOfTheRoundedNumbersInBothForms) {
  const bool has_it = has_operation();
  for (const auto& [rows, depth, columns] :
       {std::tuple{1, 1, 1}, {33, 17, 5}, {48, 32, 64}, {3, 131, 47}}) {
    for (const auto type : {kE4m3, kE5m2}) {
      for (const auto shared : {SharedScale::kAll, SharedScale::kRow}) {
        const Tensor x = random({rows, depth}, 7).to(at::kFloat);
        const Tensor w = random({columns, depth}, 9).to(at::kFloat);
        const Float8Rows left = to_float8({x}, largest_magnitudes({x}, shared), type);
        const Float8Rows right = to_float8({w}, largest_magnitudes({w}, shared), kE4m3);
        const Tensor exact = at::matmul(wide(left), wide(right).t());
        const auto expect = [&](const Tensor& made, double tolerance, const char* what) {
          ASSERT_EQ(made.sizes(), exact.sizes());
          EXPECT_LE(
              (made.to(at::kDouble) - exact).abs().max().item<double>(),
              tolerance * exact.abs().max().item<double>())
              << what << " " << rows << " x " << depth << " x " << columns;
        };
        expect(float8_product(left, right, at::kFloat, Float8Form::kEmulated), 1e-6, "float32");
        const Tensor emulated = float8_product(left, right, at::kBFloat16, Float8Form::kEmulated);
        EXPECT_EQ(emulated.scalar_type(), at::kBFloat16);
        expect(emulated, 0x1p-8, "bfloat16");
        // libtorch supports row scales on GPUs only.
        if (shared == SharedScale::kAll && has_it) {
          expect(
              float8_product(left, right, at::kBFloat16, Float8Form::kOperation),
              0x1p-8,
              "the operation");
        }
      }
    }
  }
  if (!has_it) {
    GTEST_SKIP() << "the emulation alone: oneDNN has no product of 8-bit numbers on this processor";
  }
}

TEST(Float8, OfNoRowsOrNoDepthProductsAreZeros) {
  const auto of = [](int64_t rows, int64_t depth) {
    const Tensor x = at::ones({rows, depth}).to(at::kBFloat16);
    return to_float8({x}, largest_magnitudes({x}, SharedScale::kRow), kE4m3);
  };
  for (const auto form : {Float8Form::kEmulated, Float8Form::kOperation}) {
    EXPECT_TRUE(float8_product(of(0, 5), of(3, 5), at::kBFloat16, form).sizes().equals({0, 3}));
    EXPECT_TRUE(float8_product(of(2, 0), of(3, 0), at::kBFloat16, form)
                    .equal(at::zeros({2, 3}).to(at::kBFloat16)));
  }
}

}  // namespace float8_test
}  // namespace lockstep::ops
