// Operands of products in 8-bit floats, on a GPU: launches over plain pointers. See ops/float8.h.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::cuda {

/// Rows [rows, columns] of bfloat16 as they lie, one of the two strides 1, each number times a
/// factor, which is a power of two.
struct FactoredRows {
  const void* from = nullptr;
  int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 1;
  const float* factors = nullptr;  // null: all are 1
  int64_t factor_of_column = 0;    // the stride of factors: 0, one for all
};

/// The largest magnitude of each row -> largest [rows], which holds zeros before, or anything where
/// column_stride is 1; NaN where one is.
void largest_of_rows(const FactoredRows& from, float* largest, cudaStream_t stream);

/// Where the rounded numbers go: values [rows, columns] with these strides, one of them 1, and the
/// scales [rows], or one for all as `largest` has them.
struct Float8Out {
  uint8_t* values = nullptr;
  int64_t row_stride = 0, column_stride = 1;
  float* scales = nullptr;
  bool has_e5m2 = false;  // else e4m3
  bool is_by_row = false;
};
/// Where a `largest` is not finite, none of those that share its scale is.
void round_to_float8(
    const FactoredRows& from, const float* largest, const Float8Out& out, cudaStream_t stream);

}  // namespace lockstep::cuda
