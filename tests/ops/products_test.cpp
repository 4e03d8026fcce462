// Low-precision matrix products compared with float64, split and whole. On a processor without such
// instructions, or with LOCKSTEP_MAX_CPU_ISA=avx2, they are computed in float32.
#include "ops/products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace products_test {

/// Exact sums of products of 8-bit values are rounded once: half a unit in the last place.
constexpr double kRoundedOnce = 1.0 / 256;

Tensor exact(const Tensor& x) {
  return x.detach().to(at::kDouble);
}

TEST(Products, OfTwoMatricesAreRoundedOnce) {
  struct Sizes {
    int64_t rows, depth, columns;
  };
  // One row, an empty sum, odd sizes, and operands that are split on the left and on the right.
  for (const auto& [rows, depth, columns] :
       {Sizes{1, 5, 3}, {7, 0, 4}, {33, 37, 45}, {3, 1024, 2100}, {2100, 1024, 5}}) {
    for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
      for (const bool lies_transposed : {false, true}) {
        const Tensor left = random({rows, depth}).to(type);
        const Tensor right = lies_transposed ? random({columns, depth}, 2).to(type).t()
                                             : random({depth, columns}, 2).to(type);
        const Tensor bias = random({columns}, 3).to(type);
        const Tensor wanted = exact(left).matmul(exact(right));
        const std::string what =
            fmt::format("{}x{} x {}x{}, type {}", rows, depth, depth, columns, toString(type));
        EXPECT_LE(error(matrix_product(left, right), wanted), kRoundedOnce) << what;
        EXPECT_LE(error(matrix_product(left, right, bias), wanted + exact(bias)), kRoundedOnce)
            << what;
        const Tensor written = at::full({rows, columns}, 9, left.options());
        write_matrix_product(written, left, right);
        EXPECT_LE(error(written, wanted), kRoundedOnce) << what;
        const Tensor sum = random({rows, columns}, 4).to(type), before = exact(sum);
        add_matrix_product(sum, left, right);
        EXPECT_LE(error(sum, wanted + before), kRoundedOnce) << what;
        const Tensor wide = at::full({rows, columns}, 9, at::kFloat);
        write_matrix_product(wide, left, right);
        EXPECT_LE(error(wide, wanted), kRoundedOnce) << what;
        add_matrix_product(wide, left, right);
        EXPECT_LE(error(wide, wanted * 2), kRoundedOnce) << what;
      }
    }
  }
}

TEST(Products, OfManyMatricesHaveGradients) {
  for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const Tensor left = random({2, 3, 9, 5}).to(type).requires_grad_();
    const Tensor right = random({2, 3, 5, 7}, 2).to(type).requires_grad_();
    const Tensor product = matrix_products(left, right);
    EXPECT_EQ(product.scalar_type(), type);
    product.sum().backward();
    const Tensor a = exact(left), b = exact(right);
    EXPECT_LE(error(product, a.matmul(b)), kRoundedOnce);
    const Tensor ones = at::ones({2, 3, 9, 7}, at::kDouble);
    EXPECT_LE(error(left.grad(), ones.matmul(b.transpose(2, 3))), kRoundedOnce);
    EXPECT_LE(error(right.grad(), a.transpose(2, 3).matmul(ones)), kRoundedOnce);
  }
}

}  // namespace products_test
}  // namespace lockstep::ops
