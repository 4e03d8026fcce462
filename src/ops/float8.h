// Products with operands rounded to 8-bit floats: e4m3 (3 bits of fraction, up to 448) in the
// forward pass, e5m2 (2 bits, up to 57344) for gradients (Micikevicius et al., "FP8 Formats for
// Deep Learning", 2022). Scales are powers of two, so scaling does not change the fraction. The
// rounded value depends on the scale only if it is 2^14 (e4m3) or 2^29 (e5m2) times smaller than
// the largest value that shares the scale. No autograd.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Rows [n, k] in 8 bits; a number is value * scale.
struct Float8Rows {
  Tensor values;  // [n, k], kFloat8_e4m3fn or kFloat8_e5m2
  Tensor scales;  // [n, 1] or [1, 1], float32, powers of two; undefined: all 1
};

/// Granularity of the scales.
enum class SharedScale { kAll, kRow };
/// Input of the rounding: rows [n, k], each value times a factor that is a power of two.
struct FactoredRows {
  Tensor rows;
  Tensor factors = {};  // float32, [1, k] or [1, 1]; undefined: all 1
};
/// Preferred memory order of the rounded values, used if it has no extra cost.
enum class Float8Order { kRows, kColumns };

/// Returns the largest magnitudes, [1, 1] or [n, 1], float32; 0 for empty input.
Tensor largest_magnitudes(const FactoredRows& from, SharedScale shared);
/// Rounds to nearest, ties to even. `largest` are the largest magnitudes as above, over all values
/// that share a scale. Each scale is the least power of two for which the scaled magnitude does not
/// exceed the type's largest number. NaN and Inf are preserved. Uses a custom kernel for bfloat16
/// on a GPU if available, otherwise ATen's operations.
Float8Rows to_float8(
    const FactoredRows& from,
    const Tensor& largest,
    at::ScalarType type,
    Float8Order order = Float8Order::kRows);
/// Returns the transposed values without scales; the caller multiplies the other operand by them.
Float8Rows transposed_values(const Float8Rows& rows);

enum class Float8Form {
  kOperation,  // at::_scaled_mm, available from compute capability 8.9 on
  kEmulated,   // the rounded values are multiplied in `type`, which represents them exactly
};
/// left [n, k] x right [m, k]^T -> [n, m] in `type`, summed in float32 and rounded once. The right
/// operand is e4m3. kOperation needs multiples of 16 and pads with zeros.
Tensor float8_product(
    const Float8Rows& left, const Float8Rows& right, at::ScalarType type, Float8Form form);
/// Computes the product in the form that the device supports: kOperation on GPUs, which returns
/// bfloat16 only.
Tensor float8_product(const Float8Rows& left, const Float8Rows& right, at::ScalarType type);

/// Runs a test product; throws Error (environment) if the device does not support them.
void check_float8(c10::Device device, SharedScale shared);

}  // namespace lockstep::ops
