// A single wrong element of a product shows in its row's sum for every type, and rounding does not.
#include "ops/checked_products.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/linear.h"
#include "ops/products.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace checked_products_test {

/// Enables the checks for the lifetime of the object.
struct Checks {
  Checks() { check_products(true); }
  Checks(const Checks&) = delete;
  Checks& operator=(const Checks&) = delete;
  ~Checks() { check_products(false); }
};

struct Operands {
  Tensor left, right, bias;
  Tensor product() const { return matrix_product(left, right, bias); }
};

Operands operands(int64_t m, int64_t k, int64_t n, at::ScalarType type, double mean = 0) {
  return {
      (random({m, k}) + mean).to(type),
      (random({n, k}, 2) + mean).to(type).t(),
      random({n}, 3).to(type)};
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

TEST(CheckedProducts, RoundingIsNotFound) {
  for (const auto type : kTypes) {
    for (const double mean :
         {0.0, 1.0, 30.0}) {  // sums of values with the same sign round in one direction
      for (const auto& [m, k, n] :
           {std::array<int64_t, 3>{1, 1, 1}, {7, 0, 4}, {33, 2048, 45}, {300, 64, 3000}}) {
        if (type == at::kHalf && mean > 1 && k > 100) {
          continue;  // exceeds the type's largest number
        }
        const Operands o = operands(m, k, n, type, mean);
        const auto odd = find_odd_row(o.product(), o.left, o.right, o.bias);
        EXPECT_FALSE(odd) << toString(type) << " mean " << mean << " " << m << "x" << k << "x" << n
                          << ": " << odd->sum << " for " << odd->expected << " within "
                          << odd->tolerance;
      }
    }
  }
}

TEST(CheckedProducts, AWrongElementIsFoundWhateverItBecame) {
  for (const auto type : kTypes) {
    const Operands o = operands(21, 64, 256, type);
    const Tensor right_one = o.product();
    for (const double wrong :
         {1e3, -1e4, 6e4, 1e20, 1e38, std::numeric_limits<double>::infinity(), std::nan("")}) {
      Tensor result = right_one.clone();
      result[13][5] = wrong;
      const auto odd = find_odd_row(result, o.left, o.right, o.bias);
      ASSERT_TRUE(odd) << toString(type) << " " << wrong;
      EXPECT_EQ(odd->row, 13) << toString(type) << " " << wrong;
    }
  }
  // In float32, an error of a hundredth of a typical element is detected.
  const Operands o = operands(21, 64, 256, at::kFloat);
  Tensor result = o.product();
  result[2][200] += 0.08;
  EXPECT_TRUE(find_odd_row(result, o.left, o.right, o.bias));
}

TEST(CheckedProducts, OperandsThatAreNotFiniteTellNothing) {
  Operands o = operands(5, 8, 9, at::kFloat);
  o.left[3][1] = std::nan("");
  EXPECT_FALSE(find_odd_row(o.product(), o.left, o.right, o.bias));
  o.right[2][2] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(find_odd_row(o.product(), o.left, o.right, o.bias));
}

TEST(CheckedProducts, AWrongOneIsMadeOnceMore) {
  const Checks checks;
  const Operands o = operands(6, 8, 10, at::kFloat);
  const Tensor wanted = o.product();
  const int64_t before = wrong_products();
  Tensor result = wanted.clone();
  result[1][1] = -1e9;
  check_product(result, o.left, o.right, o.bias, [&] { result.copy_(wanted); });
  EXPECT_TRUE(at::equal(result, wanted));
  EXPECT_EQ(wrong_products(), before + 1);
  // The same result again is accepted: it may be this processor's rounding.
  result[1][1] = -1e9;
  check_product(result, o.left, o.right, o.bias, [] {});
  EXPECT_EQ(result[1][1].item<float>(), -1e9F);
  EXPECT_EQ(wrong_products(), before + 1);
  try {
    check_product(result, o.left, o.right, o.bias, [&] { result[1][1] = 1e8; });
    FAIL() << "two results, and none adds up";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    EXPECT_NE(error.message().find("row 1"), std::string::npos) << error.message();
  }
}

TEST(CheckedProducts, NothingIsLookedAtUnlessAskedFor) {
  const Operands o = operands(6, 8, 10, at::kFloat);
  check_product(at::zeros({6, 10}), o.left, o.right, o.bias, [] { FAIL() << "made again"; });
}

TEST(CheckedProducts, LinearLayersGiveTheSameWithThem) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      const auto gradients = [&] {
        const Tensor x = leaf(random({3, 40, 24}), type);
        const Tensor w =
            leaf(layout == WeightLayout::kOutIn ? random({56, 24}, 2) : random({24, 56}, 2), type);
        const Tensor b = leaf(random({56}, 3), type);
        const Tensor y = linear(x, w, b, layout);
        y.backward(random({3, 40, 56}, 4).to(type));
        return std::vector<Tensor>{y, x.grad(), w.grad(), b.grad()};
      };
      const std::vector<Tensor> plain = gradients();
      const Checks checks;
      const int64_t before = wrong_products();
      const std::vector<Tensor> checked = gradients();
      EXPECT_EQ(wrong_products(), before);
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_LE(error(checked[i], plain[i].to(at::kDouble)), type == at::kFloat ? 1e-5 : 1e-2)
            << i;
      }
    }
  }
}

}  // namespace checked_products_test
}  // namespace lockstep::ops
