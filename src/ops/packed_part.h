// The part of a packed matrix that a rank holds: whole rows or a range of columns, as one run of
// bytes. Blocks of 4 bits run over the flattened matrix, so that a cut may fall inside of one; the
// part then has the scale of every block that it touches, and its values are those of the whole to
// the bit.
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

/// Which part, and how its bytes lie: what is small and read often (values of codes, scales of
/// scales), the codes row by row, each row from a whole byte on, then as many scales for each row.
struct PackedPart {
  PackedFormat format;
  int64_t out = 0, in = 0;       // of the whole matrix
  std::vector<IndexRange> rows;  // ascending and apart
  IndexRange columns;

  static PackedPart whole(const PackedFormat& format, int64_t out, int64_t in);
  int64_t row_count() const;
  /// A multiple of 16, so that what follows it in a buffer is aligned too.
  int64_t bytes() const;
  bool operator==(const PackedPart&) const = default;
};

/// The part of `whole`, uint8 [part.bytes()], on the CPU.
Tensor part_bytes(const PackedMatrix& whole, const PackedPart& part);

/// Rows and columns of a part, counted in it -> [rows, columns] of a floating type, on the device
/// of `bytes`. `bytes` is uint8 [part.bytes()], aligned to 16 bytes.
Tensor unpack(
    const PackedPart& part,
    const Tensor& bytes,
    IndexRange rows,
    IndexRange columns,
    at::ScalarType type);

/// x W^T of the part, unpacked a panel at a time into a buffer that caches hold: x [..., columns]
/// -> [..., rows], and the bias [rows] where it is defined; in x's type, summed in float32. No
/// autograd.
Tensor packed_linear(
    const PackedPart& part, const Tensor& bytes, const Tensor& x, const Tensor& bias);
/// dy W: [..., rows] -> [..., columns]. No autograd.
Tensor packed_input_gradient(const PackedPart& part, const Tensor& bytes, const Tensor& y_gradient);

}  // namespace lockstep::ops
