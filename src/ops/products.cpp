// Matrix products through ATen, with float32 fallbacks and splits for alignment.
#include "ops/products.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/processor.h"
#include "ops/checked_products.h"

namespace lockstep::ops {
namespace {

/// Number of operand elements that are converted to float32 at a time (8 MB).
constexpr int64_t kPartElements = int64_t{1} << 21;
/// Alignment in bytes that fast GPU products require.
constexpr int64_t kGpuBytes = 16;
/// Minimum size of a dimension that is split if it is not aligned.
constexpr int64_t kLeastCutSize = 512;
/// Minimum number of rows for the conversion to float32. With fewer rows, the time of ATen's
/// product with a transposed right operand is dominated by reading that operand.
constexpr int64_t kLeastWidenedRows = 4;

bool are_widened(const Tensor& left, const Tensor& right) {
  const bool lies_transposed = right.stride(-2) == 1;
  return !multiplies(left.device(), left.scalar_type()) &&
         (left.size(-2) >= kLeastWidenedRows || !lies_transposed);
}

Tensor widened(const Tensor& x) {
  return x.to(at::kFloat);
}

/// Computes left x right + added in float32 chunks. `added` is a bias [n] or a matrix [m, n]; the
/// matrix may be the result itself.
void multiply_parts(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& added) {
  const int64_t depth = std::max<int64_t>(left.size(1), 1);
  const int64_t part = std::max<int64_t>(kPartElements / depth, 1);
  const bool adds_matrix = added.defined() && added.dim() == 2;
  for (int64_t column = 0; column < right.size(1); column += part) {
    const int64_t columns = std::min(part, right.size(1) - column);
    const Tensor of_columns = widened(right.narrow(1, column, columns));
    const Tensor beside = added.defined() ? added.narrow(-1, column, columns) : added;
    for (int64_t row = 0; row < left.size(0); row += part) {
      const int64_t rows = std::min(part, left.size(0) - row);
      const Tensor of_rows = widened(left.narrow(0, row, rows));
      const Tensor term = adds_matrix ? beside.narrow(0, row, rows) : beside;
      result.narrow(0, row, rows)
          .narrow(1, column, columns)
          .copy_(
              term.defined() ? at::addmm(widened(term), of_rows, of_columns)
                             : at::mm(of_rows, of_columns));
    }
  }
}

/// Returns the part of a dimension that is computed as a separate product on a GPU: the largest
/// multiple of 16 bytes. Otherwise an unaligned size (a vocabulary of 50,257) would make the whole
/// product several times slower.
int64_t aligned_part(const Tensor& left, int64_t size) {
  const int64_t numbers = kGpuBytes / static_cast<int64_t>(left.element_size());
  return left.is_cuda() && size >= kLeastCutSize ? size / numbers * numbers : size;
}

bool has_aligned_rows(const Tensor& x) {
  return x.stride(1) == 1 && x.stride(0) * static_cast<int64_t>(x.element_size()) % kGpuBytes == 0;
}

/// Same as multiply_parts, but uses ATen's products if the processor supports the type.
void multiply_into(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& added) {
  const int64_t columns = right.size(1), whole = aligned_part(left, columns);
  if (whole < columns && has_aligned_rows(result)) {
    const auto multiply_columns = [&](int64_t begin, int64_t count) {
      const Tensor beside = added.defined() ? added.narrow(-1, begin, count) : added;
      multiply_into(result.narrow(1, begin, count), left, right.narrow(1, begin, count), beside);
    };
    multiply_columns(0, whole);
    multiply_columns(whole, columns - whole);
    return;
  }
  const int64_t depth = left.size(1), most = aligned_part(left, depth);
  if (most < depth && has_aligned_rows(left)) {
    // The remainder is computed first, so that its intermediate rounding is relative to a small
    // sum.
    multiply_into(
        result, left.narrow(1, most, depth - most), right.narrow(0, most, depth - most), added);
    multiply_into(result, left.narrow(1, 0, most), right.narrow(0, 0, most), result);
    return;
  }
  Tensor written = result;
  const auto type = result.scalar_type();
  if (are_widened(left, right)) {
    multiply_parts(result, left, right, added);
  } else if (type != left.scalar_type()) {
    added.defined() ? at::addmm_out(written, added, left, right, type)
                    : at::mm_out(written, left, right, type);
  } else if (added.defined()) {
    at::addmm_out(written, added, left, right);
  } else {
    at::mm_out(written, left, right);
  }
}

/// Returns true if ATen can write the product to this result or add it.
bool takes_result(const Tensor& result, const Tensor& left) {
  return result.is_cuda() || result.scalar_type() == left.scalar_type();
}

}  // namespace

bool multiplies(c10::Device device, at::ScalarType type) {
  if (!device.is_cpu() || (type != at::kBFloat16 && type != at::kHalf)) {
    return true;
  }
#if defined(__x86_64__)
  return type == at::kBFloat16
             ? instruction_set() >= InstructionSet::kAvx512Bfloat16
             : instruction_set() >= InstructionSet::kAvx512 && __builtin_cpu_supports("avx512fp16");
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
  if (!takes_result(result, left)) {
    result.copy_(matrix_product(left, right));
    return;
  }
  multiply_into(result, left, right, {});
  check_product(result, left, right, {}, [&] { multiply_into(result, left, right, {}); });
}

void add_matrix_product(const Tensor& sum, const Tensor& left, const Tensor& right) {
  if (!takes_result(sum, left) || (checks_products() && sum.is_cpu())) {
    sum.add_(matrix_product(left, right));
  } else {
    multiply_into(sum, left, right, sum);
  }
}

Tensor matrix_products(const Tensor& left, const Tensor& right) {
  return are_widened(left, right) ? at::matmul(widened(left), widened(right)).to(left.scalar_type())
                                  : at::matmul(left, right);
}

}  // namespace lockstep::ops
