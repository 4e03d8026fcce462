// Products by the kernel of AMX, on all threads of a rank. Internal to ops.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cpu/matrix_kernel.h"

namespace lockstep::ops {

/// With fewer rows a product reads its right side and does little else; laying it out anew is dear.
inline constexpr int64_t kLeastProductRows = 32;

/// Whether the kernel takes a tensor as a side of a product: bfloat16 in host memory, on a
/// processor with AMX.
bool fits_matrix_kernel(const at::Tensor& side);

/// Of a contiguous tensor of two dims.
kernel::Operand operand(const at::Tensor& matrix, kernel::Depth depth);

/// With at::parallel_for's threads. Both sides fit.
void run(const kernel::MatrixProduct& product);

}  // namespace lockstep::ops
