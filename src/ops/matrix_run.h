// Products by the AMX kernel, on all threads of a rank. Internal to ops.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cpu/matrix_kernel.h"

namespace lockstep::ops {

/// With fewer rows, a product mostly reads its right side, and packing it is too expensive.
inline constexpr int64_t kLeastProductRows = 32;

/// True if the kernel supports a tensor as an operand: bfloat16 in host memory, on a processor with
/// AMX.
bool fits_matrix_kernel(const at::Tensor& side);

/// Returns the operand for a contiguous 2-D tensor.
kernel::Operand operand(const at::Tensor& matrix, kernel::Depth depth);

/// Computes the product with at::parallel_for's threads. Requires fits_matrix_kernel() for both
/// sides.
void run(const kernel::MatrixProduct& product);

}  // namespace lockstep::ops
