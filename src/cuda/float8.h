// Rounding to 8-bit floats on a GPU, launched on plain pointers. See ops/float8.h.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::cuda {

/// Strided bfloat16 rows [rows, columns], one of the two strides 1, each value times a factor that
/// is a power of two.
struct FactoredRows {
  const void* from = nullptr;
  int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 1;
  const float* factors = nullptr;  // null: all 1
  int64_t factor_of_column = 0;    // stride of factors; 0: one common factor
};

/// Writes the largest magnitude of each row to largest [rows]; NaN if the row has NaN. `largest`
/// must be zero before the call, unless column_stride is 1.
void largest_of_rows(const FactoredRows& from, float* largest, cudaStream_t stream);

/// Output of the rounding: values [rows, columns] with these strides, one of them 1, and scales
/// [rows], or a single one, matching `largest`.
struct Float8Out {
  uint8_t* values = nullptr;
  int64_t row_stride = 0, column_stride = 1;
  float* scales = nullptr;
  bool has_e5m2 = false;  // true: e5m2; false: e4m3
  bool is_by_row = false;
};
/// If a `largest` is not finite, all values that share its scale become NaN.
void round_to_float8(
    const FactoredRows& from, const float* largest, const Float8Out& out, cudaStream_t stream);

}  // namespace lockstep::cuda
