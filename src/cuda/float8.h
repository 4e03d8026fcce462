// Rounding to 8-bit floats on a GPU. Takes plain pointers. See ops/float8.h.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::cuda {

/// Strided bfloat16 rows [rows, columns]. One of the two strides is 1. Each value is multiplied by
/// a factor that is a power of two.
struct FactoredRows {
  const void* from = nullptr;
  int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 1;
  const float* factors = nullptr;  // null: all factors are 1
  int64_t factor_of_column = 0;    // stride of the factors; 0: a single common factor
};

/// Writes the largest magnitude of each row to largest [rows]; NaN if the row contains NaN. Unless
/// column_stride is 1, `largest` must be zero before the call.
void largest_of_rows(const FactoredRows& from, float* largest, cudaStream_t stream);

/// Output of the rounding: values [rows, columns] with these strides, one of which is 1, and one
/// scale for each element of `largest`.
struct Float8Out {
  uint8_t* values = nullptr;
  int64_t row_stride = 0, column_stride = 1;
  float* scales = nullptr;
  bool has_e5m2 = false;  // true: e5m2; false: e4m3
  bool is_by_row = false;
};
/// Rounds the values. If an element of `largest` is NaN or Inf, all values that share its scale
/// become NaN.
void round_to_float8(
    const FactoredRows& from, const float* largest, const Float8Out& out, cudaStream_t stream);

}  // namespace lockstep::cuda
