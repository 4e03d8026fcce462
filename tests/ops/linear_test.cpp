// Linear layers compared with float64 references, over sizes that no tile divides.
#include "ops/linear.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "ops/cpu/machine.h"
#include "ops/cpu/vector.h"
#include "ops/expect_close.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace linear_test {

Tensor plain(const std::vector<Tensor>& in, WeightLayout layout) {
  const Tensor y = in[0].matmul(layout == WeightLayout::kOutIn ? in[1].t() : in[1]);
  return in.size() > 2 ? y + in[2] : y;
}

Tensor ours(const std::vector<Tensor>& in, WeightLayout layout) {
  return linear(in[0], in[1], in.size() > 2 ? std::optional(in[2]) : std::nullopt, layout);
}

std::vector<int64_t> sizes_of(WeightLayout layout, int64_t in, int64_t out) {
  return layout == WeightLayout::kOutIn ? std::vector{out, in} : std::vector{in, out};
}

TEST(Linear, ValuesAndGradientsAreThePlainOnes) {
  struct Sizes {
    int64_t rows, in, out;
  };
  // Fewer rows than the loops support, whole tiles, partial tiles, and depths of more than one
  // chunk in each of the three products.
  const Sizes all[] = {
      {1, 5, 3},
      {32, 32, 32},
      {33, 37, 45},
      {64, 96, 1},
      {70, 1, 40},
      {100, 700, 65},
      {1100, 33, 600}};
  for (const Sizes& sizes : all) {
    for (const auto layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      for (const bool with_bias : {false, true}) {
        std::vector<Tensor> inputs = {
            random({sizes.rows, sizes.in}), random(sizes_of(layout, sizes.in, sizes.out), 2)};
        if (with_bias) {
          inputs.push_back(random({sizes.out}, 3));
        }
        expect_close(
            [&](const auto& in) { return ours(in, layout); },
            [&](const auto& in) { return plain(in, layout); },
            inputs,
            fmt::format(
                "{} x {} -> {}, layout {}",
                sizes.rows,
                sizes.in,
                sizes.out,
                static_cast<int>(layout)));
      }
    }
  }
}

/// Without gradients, a few rows use the loops that read the weight once, on every processor and in
/// both layouts. The sums equal those of many rows, rounded once.
TEST(Linear, FewRowsWithoutGradients) {
  const vector::Level best = vector::level();
  const at::NoGradGuard no_gradient;
  struct Case {
    int64_t in, out;
    WeightLayout layout;
    at::ScalarType type;
  };
  std::vector<Case> cases;
  // Sizes that are not multiples of a vector, more columns than are summed at a time, with two
  // threads and one.
  for (const auto& [in, out] : {std::pair(133, 40), {1, 3}, {2048, 70}, {21, 4500}}) {
    for (const WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      cases.push_back({in, out, layout, at::kBFloat16});
      cases.push_back({in, out, layout, at::kFloat});
    }
  }
  for (const Case& of : cases) {
    const Tensor weight = random(sizes_of(of.layout, of.in, of.out), 1).to(of.type);
    const Tensor bias = random({of.out}, 2).to(of.type);
    const double off = of.type == at::kFloat ? 1e-5 : 0.005;
    for (const int64_t rows : {1, 2, 3, 4}) {
      const Tensor x = random({1, rows, of.in}, 3).to(of.type);
      const Tensor wanted = plain({x.to(at::kDouble), weight.to(at::kDouble)}, of.layout);
      for (const vector::Level level :
           {vector::Level::kPlain, vector::Level::kAvx2, vector::Level::kAvx512}) {
        vector::level() = std::min(level, best);
        const Tensor y = ours({x, weight}, of.layout);
        const Tensor with_bias = ours({x, weight, bias}, of.layout);
        vector::level() = best;
        const auto name = fmt::format("{} x {} -> {}", rows, of.in, of.out);
        ASSERT_EQ(y.scalar_type(), of.type);
        ASSERT_EQ(y.sizes(), wanted.sizes());
        EXPECT_TRUE(at::allclose(y.to(at::kDouble), wanted, off, 1e-4)) << name;
        EXPECT_TRUE(
            at::allclose(with_bias.to(at::kDouble), wanted + bias.to(at::kDouble), off, 1e-3))
            << name;
      }
    }
  }
}

TEST(Linear, TakesTensorsAsTheyLie) {
  const Tensor wide = random({3, 50, 130}).to(at::kBFloat16);
  const Tensor weight = random({64, 128}, 2).to(at::kBFloat16);
  const Tensor expected = wide.narrow(2, 1, 128).to(at::kDouble).matmul(weight.to(at::kDouble).t());
  const auto product = [&](const Tensor& x, const Tensor& w) {
    return linear(x, w, std::nullopt, WeightLayout::kOutIn);
  };
  EXPECT_LT(error(product(wide.narrow(2, 1, 128), weight), expected), 1e-2);
  EXPECT_LT(error(product(wide.narrow(2, 1, 128), weight.t().contiguous().t()), expected), 1e-2);
  // Contiguous, but not aligned to a cache line.
  const Tensor moved = at::empty({3 * 50 * 128 + 1}, at::kBFloat16).narrow(0, 1, 3 * 50 * 128);
  moved.copy_(wide.narrow(2, 1, 128).flatten());
  EXPECT_LT(error(product(moved.view({3, 50, 128}), weight), expected), 1e-2);
  EXPECT_EQ(
      product(at::empty({0, 128}, at::kBFloat16), weight).sizes(), (std::vector<int64_t>{0, 64}));
}

TEST(Linear, GradientsOfSomeInputsAlone) {
  const auto x = leaf(random({40, 33}), at::kBFloat16);
  const auto weight = leaf(random({21, 33}, 2), at::kBFloat16);
  const auto bias = leaf(random({21}, 3), at::kBFloat16);
  linear(x.detach(), weight.detach(), bias, WeightLayout::kOutIn).sum().backward();
  EXPECT_LT(error(bias.grad(), at::full({21}, 40.0)), 1e-2);
  linear(x.detach(), weight, std::nullopt, WeightLayout::kOutIn).sum().backward();
  EXPECT_LT(error(weight.grad(), x.detach().to(at::kDouble).sum(0).expand({21, 33})), 1e-2);
  linear(x, weight.detach(), std::nullopt, WeightLayout::kOutIn).sum().backward();
  EXPECT_LT(error(x.grad(), weight.detach().to(at::kDouble).sum(0).expand({40, 33})), 1e-2);
}

// Each element is summed in a fixed order, independent of the thread that computes it.
TEST(Linear, ThreadsDoNotChangeABit) {
  const auto all = [&] {
    std::vector<Tensor> results;
    for (const auto layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      const auto made = value_and_gradients(
          [&](const auto& in) { return ours(in, layout); },
          {random({130, 600}), random(sizes_of(layout, 600, 333), 2), random({333}, 3)},
          at::kBFloat16);
      results.insert(results.end(), made.begin(), made.end());
    }
    return results;
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = all();
  at::set_num_threads(3);
  const auto shared = all();
  at::set_num_threads(threads);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_TRUE(at::equal(alone[i], shared[i])) << i;
  }
}

/// Factors have 16 bits of fraction, and results are rounded once.
TEST(Linear, ProductsWithFactorsInFloat32) {
  struct Sizes {
    int64_t rows, width, rank;
  };
  for (const auto& [rows, width, rank] :
       {Sizes{32, 32, 16}, Sizes{45, 77, 3}, Sizes{130, 1100, 64}, Sizes{64, 33, 1}}) {
    const Tensor x = random({rows, width}).to(at::kBFloat16);
    if (!multiplies_factors(x)) {
      GTEST_SKIP() << "this processor has no AMX";
    }
    const std::string what = fmt::format("{} x {}, rank {}", rows, width, rank);
    const Tensor a = random({rank, width}, 2).to(at::kFloat);
    const Tensor left = random({rows, rank}, 3).to(at::kFloat);
    const Tensor wide = x.to(at::kDouble), wide_left = left.to(at::kDouble);
    constexpr double kBits = 1.0 / (1 << 14);  // error of long sums
    EXPECT_LT(error(times_factor(x, a), wide.matmul(a.to(at::kDouble).t())), kBits) << what;
    EXPECT_LT(error(times_factor(x, a.t().contiguous().t()), times_factor(x, a)), 1e-9) << what;
    EXPECT_LT(error(factor_times(left, x), wide_left.t().matmul(wide)), kBits) << what;
    const Tensor expected = wide_left.matmul(a.to(at::kDouble));
    for (const Into into : {Into::kNew, Into::kAdded}) {
      const bool is_added = into == Into::kAdded;
      const Tensor result = is_added ? x.clone() : at::full_like(x, NAN);
      write_factor_product(result, left, a, into);
      const Tensor exact = is_added ? expected + wide : expected;
      // Half a unit of bfloat16, and a small margin.
      const Tensor off = (result.to(at::kDouble) - exact).abs();
      EXPECT_TRUE((off <= exact.abs() * 0x1.1p-8 + exact.abs().max() * kBits).all().item<bool>())
          << what;
    }
  }
}

TEST(Linear, NanAndInfinityArrive) {
  Tensor x = random({64, 64}).to(at::kBFloat16);
  x[5][7] = NAN;
  x[6][8] = INFINITY;
  const Tensor weight = at::ones({32, 64}, at::kBFloat16);
  const Tensor y = linear(x, weight, std::nullopt, WeightLayout::kOutIn);
  EXPECT_TRUE(y[5].isnan().all().item<bool>());
  EXPECT_TRUE(y[6].isinf().all().item<bool>());
  EXPECT_TRUE(y[4].isfinite().all().item<bool>());
}

}  // namespace linear_test
}  // namespace lockstep::ops
