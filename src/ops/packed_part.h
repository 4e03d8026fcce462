// A rank's part of a packed quantized matrix: whole rows or a range of columns, as one run of
// bytes. 4-bit blocks run over the flattened matrix, so a cut may fall inside a block. The part
// then has the scale of every block that it touches, and its values are bitwise those of the whole.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/quantize.h"

namespace lockstep::ops {

/// Indices [begin, end).
struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

/// Description of a part. Its bytes contain first the small tables (values of codes, scales of
/// scales), then the codes row by row, each row starting at a whole byte, then the same number of
/// scales for each row.
struct PackedPart {
  PackedFormat format;
  int64_t out = 0, in = 0;       // sizes of the whole matrix
  std::vector<IndexRange> rows;  // ascending and not adjacent
  IndexRange columns;

  static PackedPart whole(const PackedFormat& format, int64_t out, int64_t in);
  int64_t row_count() const;
  /// Returns the size in bytes, a multiple of 16, so that the next part in a buffer is aligned too.
  int64_t bytes() const;
  bool operator==(const PackedPart&) const = default;
};

/// Extracts the part from `whole`: uint8 [part.bytes()], on the CPU.
Tensor part_bytes(const PackedMatrix& whole, const PackedPart& part);

/// Unpacks rows and columns of a part (indexes within the part) to [rows, columns] of a floating
/// type, on the device of `bytes`. `bytes` is uint8 [part.bytes()], aligned to 16 bytes.
Tensor unpack(
    const PackedPart& part,
    const Tensor& bytes,
    IndexRange rows,
    IndexRange columns,
    at::ScalarType type);

/// Returns x W^T for the part, plus the bias [rows] if defined: x [..., columns] -> [..., rows], in
/// x's type, summed in float32. Unpacks one cache-sized panel at a time. No autograd.
Tensor packed_linear(
    const PackedPart& part, const Tensor& bytes, const Tensor& x, const Tensor& bias);
/// Returns dy W: [..., rows] -> [..., columns]. No autograd.
Tensor packed_input_gradient(const PackedPart& part, const Tensor& bytes, const Tensor& y_gradient);

}  // namespace lockstep::ops
