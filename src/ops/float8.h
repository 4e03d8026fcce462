// Products of operands that are rounded to 8-bit floats: e4m3 (3 fraction bits, up to 448) in the
// forward pass, and e5m2 (2 fraction bits, up to 57344) for gradients (Micikevicius et al., "FP8
// Formats for Deep Learning", 2022). Scales are powers of two, so scaling does not change the
// fraction. The scale affects a rounded value only if the value is 2^14 (e4m3) or 2^29 (e5m2) times
// smaller than the largest value with the same scale. Does not support autograd.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Rows [n, k] in 8 bits. The represented number is value * scale.
struct Float8Rows {
  Tensor values;  // [n, k], kFloat8_e4m3fn or kFloat8_e5m2
  Tensor scales;  // [n, 1] or [1, 1], float32, powers of two; undefined: all 1
};

/// Values that share a scale: all values, or those of a row.
enum class SharedScale { kAll, kRow };
/// Input of the rounding: rows [n, k] whose values are multiplied by factors that are powers of
/// two.
struct FactoredRows {
  Tensor rows;
  Tensor factors = {};  // float32, [1, k] or [1, 1]; undefined: all 1
};
/// Preferred memory order of the rounded values. Used if it has no extra cost.
enum class Float8Order { kRows, kColumns };

/// Returns the largest magnitudes: float32 [1, 1] or [n, 1]; 0 for empty input.
Tensor largest_magnitudes(const FactoredRows& from, SharedScale shared);
/// Rounds to nearest, ties to even. `largest` contains the largest magnitude of the values that
/// share a scale, as returned by largest_magnitudes. Each scale is the smallest power of two for
/// which the scaled magnitude does not exceed the type's largest number. NaN and Inf are preserved.
/// Uses a custom kernel for bfloat16 on a GPU if available; otherwise uses ATen operations.
Float8Rows to_float8(
    const FactoredRows& from,
    const Tensor& largest,
    at::ScalarType type,
    Float8Order order = Float8Order::kRows);
/// Returns the transposed values without scales. The caller must multiply the other operand by the
/// scales.
Float8Rows transposed_values(const Float8Rows& rows);

enum class Float8Form {
  kOperation,  // at::_scaled_mm; requires compute capability 8.9 or later
  kEmulated,   // multiplies the rounded values in `type`, which represents them exactly
};
/// Returns left [n, k] x right [m, k]^T as [n, m] in `type`, summed in float32 and rounded once.
/// The right operand is e4m3. kOperation pads sizes to multiples of 16 with zeros.
Tensor float8_product(
    const Float8Rows& left, const Float8Rows& right, at::ScalarType type, Float8Form form);
/// Overload that chooses the form for the device: kOperation on GPUs, which supports only bfloat16
/// results, and kEmulated elsewhere.
Tensor float8_product(const Float8Rows& left, const Float8Rows& right, at::ScalarType type);

/// Computes a test product. Throws Error (environment) if the device does not support float8
/// products.
void check_float8(c10::Device device, SharedScale shared);

}  // namespace lockstep::ops
