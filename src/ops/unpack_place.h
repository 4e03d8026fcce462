// Byte layout of some rows and columns of a packed slice, in the form that kernels read: only
// integers.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::ops {

struct UnpackPlace {
  static constexpr int kMostRanges = 8;
  static constexpr int64_t kCodeValues = 16, kScaleValues = 256, kNestedBlock = 256;

  bool has_8_bits = false, is_nested = false;
  int64_t codes = 0, row_bytes = 0, scales = 0, scales_per_row = 0, nested_scales = 0;
  int64_t in = 0, part_column = 0;  // width of the whole matrix, and the slice's first column in it
  int64_t block_size = 1;
  int64_t first_row = 0, rows = 0, first_column = 0,
          columns = 0;  // requested range within the slice
  /// Rows of the slice from range_row[k] on are at row + range_shift[k] in the whole matrix.
  int64_t range_row[kMostRanges] = {}, range_shift[kMostRanges] = {};

  /// Returns the index of a slice row's first element in the flattened whole matrix.
  constexpr int64_t origin(int64_t row) const {
    int64_t shift = range_shift[0];
    for (int k = 1; k < kMostRanges;
         ++k) {  // constant indices, so that the arrays stay in registers
      shift = row >= range_row[k] ? range_shift[k] : shift;
    }
    return (row + shift) * in + part_column;
  }

  /// Returns the scale of a 4-bit block of the whole matrix, for a row that starts in block
  /// `first`. `floats` and `bytes` point to the same memory.
  constexpr float scale(
      const float* floats, const uint8_t* bytes, int64_t row, int64_t first, int64_t block) const {
    const int64_t at = row * scales_per_row + block - first;
    if (!is_nested) {
      return floats[scales / 4 + at];
    }
    // The product is exact in float64, so that no compiler can fuse the multiplication with the
    // addition.
    const auto product = static_cast<double>(floats[kCodeValues + bytes[scales + at]]) *
                         static_cast<double>(floats[nested_scales / 4 + block / kNestedBlock]);
    return static_cast<float>(product) + floats[kCodeValues + kScaleValues];
  }

  /// Returns the 4-bit code of a column from a row's bytes.
  static constexpr int code(const uint8_t* row, int64_t column) {
    return column % 2 == 0 ? row[column / 2] >> 4 : row[column / 2] & 15;
  }

  /// Returns the element in row i and column j of the requested range, before rounding to the
  /// original type.
  constexpr float value(const float* floats, const uint8_t* bytes, int64_t i, int64_t j) const {
    const int64_t row = first_row + i, column = first_column + j;
    const uint8_t* const of_row = bytes + codes + row * row_bytes;
    if (has_8_bits) {
      return static_cast<float>(static_cast<int8_t>(of_row[column])) * (floats[row] / 127.0F);
    }
    const int64_t first = origin(row);
    const float by = scale(floats, bytes, row, first / block_size, (first + column) / block_size);
    return floats[code(of_row, column)] * by;
  }
};

}  // namespace lockstep::ops
