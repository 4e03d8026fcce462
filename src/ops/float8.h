// Products whose operands are rounded to 8-bit floats: e4m3 (3 bits of fraction, up to 448) of what
// goes forward, e5m2 (2 bits, up to 57344) of gradients (Micikevicius et al., "FP8 Formats for Deep
// Learning", 2022). Scales are powers of two, so that they take nothing from a number's fraction:
// what a number is rounded to depends on the scale only where it is 2^14 (e4m3) or 2^29 (e5m2)
// times smaller than the largest that shares the scale. No autograd.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Rows [n, k] in 8 bits: a number is value * scale.
struct Float8Rows {
  Tensor values;  // [n, k], kFloat8_e4m3fn or kFloat8_e5m2
  Tensor scales;  // [n, 1] or [1, 1], float32, powers of two; undefined: all are 1
};

/// Which numbers share a scale.
enum class SharedScale { kAll, kRow };
/// What is rounded: rows [n, k], each number times a factor, which is a power of two.
struct FactoredRows {
  Tensor rows;
  Tensor factors = {};  // float32, [1, k] or [1, 1]; undefined: all are 1
};
/// How the rounded numbers are wanted in memory; where it costs nothing they lie so.
enum class Float8Order { kRows, kColumns };

/// The largest magnitude of those of [n, k]: [1, 1] or [n, 1], float32; 0 of none.
Tensor largest_magnitudes(const FactoredRows& from, SharedScale shared);
/// `largest` as above, over whatever shares the scale: each scale is the least power of two with
/// which it is no larger than the type's largest number. Rounded to nearest, ties to even. What is
/// not finite stays so. On a GPU with a kernel of this library for bfloat16, else ATen's
/// operations.
Float8Rows to_float8(
    const FactoredRows& from,
    const Tensor& largest,
    at::ScalarType type,
    Float8Order order = Float8Order::kRows);
/// The same numbers with rows for columns; the scales are left to whoever multiplies the other
/// operand by them.
Float8Rows transposed_values(const Float8Rows& rows);

enum class Float8Form {
  kOperation,  // at::_scaled_mm, as devices have it from compute capability 8.9 on
  kEmulated,   // the rounded numbers are multiplied in `type`, which holds them exactly
};
/// left [n, k] x right [m, k]^T -> [n, m] in `type`, summed in float32 and rounded once. The right
/// one is e4m3. The operation wants multiples of 16: it is given zeros beyond the rows' ends.
Tensor float8_product(
    const Float8Rows& left, const Float8Rows& right, at::ScalarType type, Float8Form form);
/// In the form that the device has: on GPUs the operation, which gives bfloat16 alone.
Tensor float8_product(const Float8Rows& left, const Float8Rows& right, at::ScalarType type);

/// Error (kEnvironment): the device has no such products. Makes one.
void check_float8(c10::Device device, SharedScale shared);

}  // namespace lockstep::ops
