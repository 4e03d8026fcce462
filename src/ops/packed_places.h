// Byte layout of a slice of a packed matrix. Internal to ops.
#pragma once

#include <limits>
#include <optional>

#include "ops/packed_part.h"
#include "ops/unpack_place.h"

namespace lockstep::ops {

inline constexpr int64_t kPartAlignment = 16;
inline constexpr int64_t kCodeValues = 16, kScaleValues = 256;

inline int64_t padded_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

inline bool is_8_bits(const PackedPart& part) {
  return part.format.kind == PackedKind::kInt8;
}

/// Offsets within the bytes of a slice.
struct PackedPlaces {
  explicit PackedPlaces(const PackedPart& part) {
    const int64_t rows = part.row_count(), columns = part.columns.size();
    const int64_t block = part.format.block_size;
    if (is_8_bits(part)) {
      codes = padded_to(rows * 4, kPartAlignment);
      row_bytes = columns;
      end = codes + padded_to(rows * columns, kPartAlignment);
      return;
    }
    int64_t floats = kCodeValues;
    if (part.format.is_nested) {
      const int64_t blocks = (part.out * part.in + block - 1) / block;
      nested_scales = (floats + kScaleValues + 1) * 4;
      floats += kScaleValues + 1 + (blocks + kNestedBlock - 1) / kNestedBlock;
    }
    codes = padded_to(floats * 4, kPartAlignment);
    row_bytes = (columns + 1) / 2;
    scales = codes + padded_to(rows * row_bytes, kPartAlignment);
    // Maximum number of blocks that a row can touch, for any position of its first element.
    const bool is_aligned = part.in % block == 0 && part.columns.begin % block == 0;
    scales_per_row = columns == 0 ? 0
                     : is_aligned ? (columns + block - 1) / block
                                  : (columns + block - 2) / block + 1;
    end =
        scales + padded_to(rows * scales_per_row * (part.format.is_nested ? 1 : 4), kPartAlignment);
  }

  int64_t nested_scales = 0;  // offset of the nested scales, which follow the values of scales and
                              // the offset
  int64_t codes = 0, row_bytes = 0;
  int64_t scales = 0, scales_per_row = 0;
  int64_t end = 0;
};

/// Returns the layout in the form that kernels read; nullopt if the slice has more row ranges than
/// that form supports.
std::optional<UnpackPlace> unpack_place(
    const PackedPart& part, IndexRange rows, IndexRange columns);

/// Implementation of unpack() with ATen operations, for any device. Used if no custom loop supports
/// the slice.
Tensor unpack_by_operations(
    const PackedPart& part,
    const Tensor& bytes,
    IndexRange rows,
    IndexRange columns,
    at::ScalarType type);

}  // namespace lockstep::ops
