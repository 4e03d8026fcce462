// Rounding to 8-bit floats, and their products.
#include "ops/float8.h"

#include <limits>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/cuda_loops.h"
#include "ops/linear.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kMultiple = 16;  // at::_scaled_mm requires sizes that are multiples of this

// float32 bit patterns: one exponent step, and the increment that carries into the exponent if the
// fraction exceeds 1.75, which is the fraction of the largest number of both types.
constexpr int64_t kExponent = int64_t{1} << 23, kAboveLargest = kExponent / 4 - 1;
constexpr int64_t kBias = 127;

/// Returns the exponent of a type's largest number, 1.75 * 2^exponent.
int64_t top_of(at::ScalarType type) {
  return type == at::kFloat8_e4m3fn ? 8 : 15;
}

Tensor multiplied(const FactoredRows& from) {
  return from.factors.defined() ? from.rows * from.factors.to(from.rows.scalar_type()) : from.rows;
}

bool has_kernels(const Tensor& rows) {
  const bool is_dense = rows.stride(0) == 1 || rows.stride(1) == 1;
  return rows.device().is_cuda() && rows.scalar_type() == at::kBFloat16 && is_dense &&
         rows.numel() > 0 && cuda_loops().round_to_float8 != nullptr;
}

/// Pads the tensor with zeros to the given numbers of rows and columns.
Tensor with_zeros(const Tensor& values, int64_t rows, int64_t columns) {
  if (rows == values.size(0) && columns == values.size(1)) {
    return values.contiguous();
  }
  Tensor result = at::zeros({rows, columns}, values.options());
  result.narrow(0, 0, values.size(0)).narrow(1, 0, values.size(1)).copy_(values);
  return result;
}

int64_t next_multiple(int64_t size) {
  return (size + kMultiple - 1) / kMultiple * kMultiple;
}

/// Returns one scale for each of `rows` rows, or a single scale if both operands have one.
Tensor scales_of(const Float8Rows& operand, const Float8Rows& other, int64_t rows) {
  const auto options = operand.values.options().dtype(at::kFloat);
  const bool is_by_row = (operand.scales.defined() && operand.scales.size(0) != 1) ||
                         (other.scales.defined() && other.scales.size(0) != 1);
  const Tensor scales = operand.scales.defined() ? operand.scales : at::ones({1, 1}, options);
  if (!is_by_row || scales.size(0) == rows) {
    return scales.contiguous();
  }
  Tensor result = at::ones({rows, 1}, options);
  result.narrow(0, 0, operand.values.size(0)).copy_(scales);
  return result;
}

Tensor by_operation(const Float8Rows& left, const Float8Rows& right, at::ScalarType type) {
  const int64_t depth = next_multiple(left.values.size(1));
  const int64_t columns = right.values.size(0), wide = next_multiple(columns);
  const Tensor product = at::_scaled_mm(
      with_zeros(left.values, left.values.size(0), depth),
      with_zeros(right.values, wide, depth).t(),
      scales_of(left, right, left.values.size(0)),
      scales_of(right, left, wide).t(),
      /*bias=*/std::nullopt,
      /*scale_result=*/std::nullopt,
      type,
      /*use_fast_accum=*/false);
  return columns == wide ? product : product.narrow(1, 0, columns).contiguous();
}

Tensor as_wide(const Float8Rows& rows, at::ScalarType type) {
  const Tensor values = rows.values.to(type);
  return rows.scales.defined() ? values * rows.scales.to(type) : values;
}

}  // namespace

Tensor largest_magnitudes(const FactoredRows& from, SharedScale shared) {
  const Tensor& rows = from.rows;
  if (rows.numel() == 0) {
    return at::zeros(
        {shared == SharedScale::kRow ? rows.size(0) : 1, 1}, rows.options().dtype(at::kFloat));
  }
  if (has_kernels(rows)) {
    const Tensor largest = at::empty({rows.size(0), 1}, rows.options().dtype(at::kFloat));
    cuda_loops().largest_of_rows(from, largest);
    return shared == SharedScale::kRow ? largest : largest.amax({0}, /*keepdim=*/true);
  }
  const double largest = std::numeric_limits<double>::infinity();
  std::vector<int64_t> over{1};
  if (shared == SharedScale::kAll) {
    over.push_back(0);
  }
  const Tensor values = multiplied(from);
  return values.scalar_type() == at::kDouble
             ? at::linalg_vector_norm(values, largest, over, /*keepdim=*/true).to(at::kFloat)
             : at::linalg_vector_norm(values, largest, over, /*keepdim=*/true, at::kFloat);
}

Float8Rows to_float8(
    const FactoredRows& from, const Tensor& largest, at::ScalarType type, Float8Order order) {
  const Tensor& rows = from.rows;
  if (has_kernels(rows)) {
    const auto options = rows.options().dtype(type);
    const Float8Rows made{
        order == Float8Order::kRows ? at::empty({rows.size(0), rows.size(1)}, options)
                                    : at::empty({rows.size(1), rows.size(0)}, options).t(),
        at::empty_like(largest)};
    cuda_loops().round_to_float8(from, largest, made);
    return made;
  }
  // Smallest exponent e with largest <= 1.75 * 2^e, minus the exponent of the type's largest
  // number, clamped so that the scale has a reciprocal.
  const Tensor bits = largest.view(at::kInt)
                          .add(kAboveLargest - top_of(type) * kExponent)
                          .clamp_(kExponent, (2 * kBias - 1) * kExponent)
                          .bitwise_and_(255 * kExponent);
  const Tensor reciprocal = at::rsub(bits, 2 * kBias * kExponent).view(at::kFloat);
  return {(multiplied(from) * reciprocal.to(rows.scalar_type())).to(type), bits.view(at::kFloat)};
}

Float8Rows transposed_values(const Float8Rows& rows) {
  return {rows.values.t(), {}};
}

Tensor float8_product(
    const Float8Rows& left, const Float8Rows& right, at::ScalarType type, Float8Form form) {
  const at::NoGradGuard no_gradient;
  if (left.values.numel() == 0 || right.values.numel() == 0) {
    return at::zeros(
        {left.values.size(0), right.values.size(0)}, left.values.options().dtype(type));
  }
  return form == Float8Form::kOperation
             ? by_operation(left, right, type)
             : linear(as_wide(left, type), as_wide(right, type), {}, WeightLayout::kOutIn);
}

Tensor float8_product(const Float8Rows& left, const Float8Rows& right, at::ScalarType type) {
  return float8_product(
      left,
      right,
      type,
      left.values.device().is_cpu() || type != at::kBFloat16 ? Float8Form::kEmulated
                                                             : Float8Form::kOperation);
}

void check_float8(c10::Device device, SharedScale shared) {
  if (device.is_cpu()) {
    return;  // CPUs emulate float8 products
  }
  try {
    const Tensor x =
        at::ones({kMultiple, kMultiple}, at::TensorOptions(device).dtype(at::kBFloat16));
    const Float8Rows rows = to_float8({x}, largest_magnitudes({x}, shared), at::kFloat8_e4m3fn);
    (void)float8_product(rows, rows, at::kBFloat16);
  } catch (const c10::Error& error) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format(
            "precision.fp8={}: {} does not support 8-bit floating-point products ({})",
            shared == SharedScale::kRow ? "row" : "tensor",
            device.str(),
            error.what_without_backtrace()),
        "remove precision.fp8; GPUs of compute capability 8.9 or later support it (L4, L40S, RTX "
        "4090, H100, H200, B200), and CPUs emulate it");
  }
}

}  // namespace lockstep::ops
