// Matrix products by the AMX kernel on all threads of a rank. Internal to ops.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cpu/matrix_kernel.h"

namespace lockstep::ops {

/// Minimum number of rows for the kernel. With fewer rows, reading the right operand dominates, and
/// packing it is too expensive.
inline constexpr int64_t kLeastProductRows = 32;

/// Returns true if the kernel supports the tensor as an operand: bfloat16 in host memory, on a
/// processor with AMX.
bool fits_matrix_kernel(const at::Tensor& side);

/// Returns the kernel operand for a contiguous 2-D tensor.
kernel::Operand operand(const at::Tensor& matrix, kernel::Depth depth);

/// Computes the product on the threads of at::parallel_for. Requires fits_matrix_kernel() for both
/// operands.
void run(const kernel::MatrixProduct& product);

}  // namespace lockstep::ops
