// Stochastic rounding from float32 to bfloat16.
#include "optim/stochastic_rounding.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::optim {
namespace stochastic_rounding_test {

std::vector<Segment> one_of(int64_t count, int64_t begin = 0) {
  return {{"weight", {count + begin}, begin, 0, count}};
}

at::Tensor rounded(const at::Tensor& from, int64_t step, uint64_t seed = 7, int64_t begin = 0) {
  at::Tensor to = at::empty_like(from, at::kBFloat16);
  round_stochastically(from, to, one_of(from.numel(), begin), seed, step);
  return to;
}

TEST(StochasticRounding, GoesToOneOfTheNeighboursAndIsRightOnAverage) {
  // A quarter of the distance from 1 to the next bfloat16, and its negative.
  for (const float sign : {1.0F, -1.0F}) {
    const float step = 1.0F / 128, value = sign * (1 + step / 4);
    const at::Tensor from = at::full({40'000}, value);
    const at::Tensor to = rounded(from, 1).to(at::kFloat);
    const at::Tensor is_low = to.eq(sign), is_high = to.eq(sign * (1 + step));
    EXPECT_TRUE(is_low.logical_or(is_high).all().item<bool>());
    const double high = is_high.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(high, 0.25, 4 * std::sqrt(0.25 * 0.75 / 40'000));  // four standard deviations
  }
}

TEST(StochasticRounding, DrawsByPlaceAndStepWhateverTheShards) {
  const at::Tensor from = at::linspace(-3, 3, 1000);
  const at::Tensor whole = rounded(from, 5);
  for (const int64_t cut : {1, 3, 500, 999}) {
    const at::Tensor first = rounded(from.narrow(0, 0, cut), 5);
    const at::Tensor second = rounded(from.narrow(0, cut, 1000 - cut).clone(), 5, 7, cut);
    EXPECT_TRUE(at::equal(at::cat({first, second}), whole)) << cut;
  }
  EXPECT_FALSE(at::equal(rounded(from, 6), whole));
  EXPECT_FALSE(at::equal(rounded(from, 5, 8), whole));
}

TEST(StochasticRounding, KeepsWhatBfloat16HoldsAndWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor from = at::tensor({0.0F, -0.0F, 1.5F, -2.0F, infinity, -infinity});
  EXPECT_TRUE(at::equal(rounded(from, 1).to(at::kFloat), from));
  const at::Tensor nan = at::tensor({std::numeric_limits<float>::quiet_NaN()});
  EXPECT_TRUE(rounded(nan, 1).isnan().item<bool>());
}

TEST(StochasticRounding, IsTheSameInTensorOperations) {
  const at::Tensor from = at::randn({777}).mul_(100);
  at::Tensor to = at::empty_like(from, at::kBFloat16);
  round_stochastically_by_tensors(from, to, one_of(777, 13), 7, 3);
  EXPECT_TRUE(at::equal(to, rounded(from, 3, 7, 13)));
}

TEST(StochasticRounding, LetsEveryOptimizerLearnWhatRoundingToTheNearestLoses) {
  for (const char* name : {"adamw", "sgd", "lion_32bit", "adamw_8bit"}) {
    const auto optimizer = make_optimizer({.optim = name, .stochastic_rounding = true, .seed = 3});
    const at::Tensor parameter = at::ones({4096}, at::kBFloat16);
    optimizer->add({.name = "w", .parameter = parameter, .gradient = at::ones({4096})});
    for (int step = 0; step < 20; ++step) {
      optimizer->step(1e-4);  // a fortieth of the distance to the next lower bfloat16
    }
    EXPECT_NEAR(parameter.to(at::kFloat).mean().item<double>(), 1 - 20e-4, 3e-4) << name;
    EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  }
}

}  // namespace stochastic_rounding_test
}  // namespace lockstep::optim
