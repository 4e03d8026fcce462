#include "ops/products.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/processor.h"
#include "ops/checked_products.h"

namespace lockstep::ops {
namespace {

/// Elements of an operand that are in float32 at a time: 8 MB.
constexpr int64_t kPartElements = int64_t{1} << 21;
/// With fewer rows ATen's sums over a right operand that lies transposed only read it.
constexpr int64_t kLeastWidenedRows = 4;

bool are_widened(const Tensor& left, const Tensor& right) {
  const bool lies_transposed = right.stride(-2) == 1;
  return !multiplies(left.device(), left.scalar_type()) &&
         (left.size(-2) >= kLeastWidenedRows || !lies_transposed);
}

Tensor widened(const Tensor& x) {
  return x.to(at::kFloat);
}

void multiply_parts(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& bias) {
  const int64_t depth = std::max<int64_t>(left.size(1), 1);
  const int64_t part = std::max<int64_t>(kPartElements / depth, 1);
  for (int64_t column = 0; column < right.size(1); column += part) {
    const int64_t columns = std::min(part, right.size(1) - column);
    const Tensor of_columns = widened(right.narrow(1, column, columns));
    const Tensor added = bias.defined() ? widened(bias.narrow(0, column, columns)) : Tensor();
    for (int64_t row = 0; row < left.size(0); row += part) {
      const int64_t rows = std::min(part, left.size(0) - row);
      const Tensor of_rows = widened(left.narrow(0, row, rows));
      result.narrow(0, row, rows)
          .narrow(1, column, columns)
          .copy_(
              added.defined() ? at::addmm(added, of_rows, of_columns)
                              : at::mm(of_rows, of_columns));
    }
  }
}

void multiply_into(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& bias) {
  Tensor written = result;
  if (are_widened(left, right)) {
    multiply_parts(result, left, right, bias);
  } else if (bias.defined()) {
    at::addmm_out(written, bias, left, right);
  } else {
    at::mm_out(written, left, right);
  }
}

}  // namespace

bool multiplies(c10::Device device, at::ScalarType type) {
  if (!device.is_cpu() || (type != at::kBFloat16 && type != at::kHalf)) {
    return true;
  }
#if defined(__x86_64__)
  const bool is_wide = instruction_set() >= InstructionSet::kAvx512;
  return is_wide && (type == at::kBFloat16 || __builtin_cpu_supports("avx512fp16"));
#else
  return true;
#endif
}

Tensor matrix_product(const Tensor& left, const Tensor& right, const Tensor& bias) {
  Tensor result;
  if (!are_widened(left, right)) {
    result = bias.defined() ? at::addmm(bias, left, right) : at::mm(left, right);
  } else {
    result = at::empty({left.size(0), right.size(1)}, left.options());
    multiply_parts(result, left, right, bias);
  }
  check_product(result, left, right, bias, [&] { multiply_into(result, left, right, bias); });
  return result;
}

void write_matrix_product(const Tensor& result, const Tensor& left, const Tensor& right) {
  multiply_into(result, left, right, {});
  check_product(result, left, right, {}, [&] { multiply_into(result, left, right, {}); });
}

Tensor matrix_products(const Tensor& left, const Tensor& right) {
  return are_widened(left, right) ? at::matmul(widened(left), widened(right)).to(left.scalar_type())
                                  : at::matmul(left, right);
}

}  // namespace lockstep::ops
