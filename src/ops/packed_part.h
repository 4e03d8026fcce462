// A rank's slice of a packed quantized matrix, stored as one run of bytes: whole rows or a range of
// columns. 4-bit blocks span the flattened matrix, so a cut may divide a block. The slice then
// stores the scales of all blocks that it touches, and its values are bitwise equal to those of the
// whole matrix.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/quantize.h"

namespace lockstep::ops {

/// Index range [begin, end).
struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

/// Description of a slice. Its bytes contain the small tables (values of codes, scales of scales),
/// then the codes by row, with each row starting at a whole byte, then the scales, with the same
/// number for each row.
struct PackedPart {
  PackedFormat format;
  int64_t out = 0, in = 0;       // size of the whole matrix
  std::vector<IndexRange> rows;  // in ascending order and not adjacent
  IndexRange columns;

  static PackedPart whole(const PackedFormat& format, int64_t out, int64_t in);
  int64_t row_count() const;
  /// Returns the size in bytes, which is a multiple of 16, so that the next slice in a buffer is
  /// also aligned.
  int64_t bytes() const;
  bool operator==(const PackedPart&) const = default;
};

/// Extracts the slice from `whole`: uint8 [part.bytes()] on the CPU.
Tensor part_bytes(const PackedMatrix& whole, const PackedPart& part);

/// Unpacks rows and columns (indices within the slice) to [rows, columns] of a floating-point type,
/// on the device of `bytes`. `bytes` is uint8 [part.bytes()], aligned to 16 bytes.
Tensor unpack(
    const PackedPart& part,
    const Tensor& bytes,
    IndexRange rows,
    IndexRange columns,
    at::ScalarType type);

/// Returns x W^T for the slice, plus the bias [rows] if defined: x [..., columns] -> [..., rows],
/// in x's type, summed in float32. Unpacks one cache-sized panel at a time. Does not support
/// autograd.
Tensor packed_linear(
    const PackedPart& part, const Tensor& bytes, const Tensor& x, const Tensor& bias);
/// Returns dy W: [..., rows] -> [..., columns]. Does not support autograd.
Tensor packed_input_gradient(const PackedPart& part, const Tensor& bytes, const Tensor& y_gradient);

}  // namespace lockstep::ops
