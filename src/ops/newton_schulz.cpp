// Step of the Newton-Schulz orthogonalization.
#include "ops/newton_schulz.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "ops/matrix_run.h"

namespace lockstep::ops {
namespace {

using at::Tensor;
using kernel::Depth;
using kernel::MatrixProduct;

struct Scales {
  float sums, added;
};

/// Computes result = sums x left right^T + added x result.
void add_product(
    const Tensor& left, const Tensor& right, Depth right_depth, const Tensor& result, Scales by) {
  MatrixProduct product;
  product.rows = left.size(0);
  product.depth = left.size(1);
  product.columns = right.size(right_depth == Depth::kAlongRows ? 0 : 1);
  product.left = operand(left, Depth::kAlongRows);
  product.right = operand(right, right_depth);
  product.result = result.data_ptr();
  product.result_stride = result.stride(0);
  product.sums = by.added == 0 ? kernel::Sums::kRounded : kernel::Sums::kAddedAndRounded;
  product.sums_scale = by.sums;
  product.added_scale = by.added;
  run(product);
}

/// Computes symmetric [m, m] = sums x rows rows^T + added x symmetric. Computes the part on and
/// above the diagonal in column panels and mirrors it, which needs about five eighths of the
/// operations of the full product.
void add_symmetric(const Tensor& rows, const Tensor& symmetric, Scales by) {
  const int64_t m = rows.size(0);
  const int64_t width = std::max<int64_t>((m / 8 + 31) / 32 * 32, 64);
  const auto panel = [&](int64_t begin) { return std::min(width, m - begin); };
  for (int64_t begin = 0; begin < m; begin += width) {
    const int64_t columns = panel(begin);
    add_product(
        rows.narrow(0, 0, begin + columns),
        rows.narrow(0, begin, columns),
        Depth::kAlongRows,
        symmetric.narrow(0, 0, begin + columns).narrow(1, begin, columns),
        by);
  }
  for (int64_t begin = width; begin < m; begin += width) {
    const int64_t columns = panel(begin);
    symmetric.narrow(0, begin, columns)
        .narrow(1, 0, begin)
        .copy_(symmetric.narrow(0, 0, begin).narrow(1, begin, columns).t());
  }
}

}  // namespace

Tensor newton_schulz_step(const Tensor& x, double a, double b, double c) {
  if (!fits_matrix_kernel(x) || x.size(0) < kLeastProductRows) {
    const Tensor squares = x.mm(x.t());
    return at::addmm(x, at::addmm(squares, squares, squares, b, c), x, a);
  }
  const int64_t m = x.size(0);
  const Tensor squares = at::empty({m, m}, x.options());
  add_symmetric(x, squares, {1, 0});
  const Tensor factor = squares.clone();
  add_symmetric(squares, factor, {static_cast<float>(c), static_cast<float>(b)});
  Tensor result = x.clone();
  add_product(factor, x, Depth::kAcrossRows, result, {1, static_cast<float>(a)});
  return result;
}

}  // namespace lockstep::ops
