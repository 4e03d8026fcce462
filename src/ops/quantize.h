// 4-bit and 8-bit quantization of matrices, bitwise equal to the CUDA kernels of bitsandbytes
// (Dettmers et al., "LLM.int8()", 2022; "QLoRA", 2023). Its CPU kernels deviate from these.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

enum class PackedKind {
  kNf4,   // 16 values with equal probability under a normal distribution (QLoRA, appendix E)
  kFp4,   // 16 values: one sign bit, two exponent bits, one mantissa bit
  kInt8,  // -127 to 127, with one scale per row
};

/// Number of 4-bit block scales that share a second-level scale (double quantization).
inline constexpr int64_t kNestedBlock = 256;

/// Quantization format. For 8 bits, only `kind` is used.
struct PackedFormat {
  PackedKind kind = PackedKind::kNf4;
  int64_t block_size = 64;  // number of consecutive elements of the flattened matrix that share a
                            // scale
  bool is_nested = false;   // double quantization: the scales are quantized to 8 bits
  at::ScalarType type = at::kFloat;  // original type; dequantized values are rounded to it

  bool operator==(const PackedFormat&) const = default;
};

/// A whole matrix [out, in] on the CPU, as the tensors that bitsandbytes stores in files.
struct PackedMatrix {
  PackedFormat format;
  int64_t out = 0, in = 0;
  /// 4 bits: uint8 [ceil(out in / 2)]; the first of two elements is in the high half of a byte. 8
  /// bits: int8 [out, in].
  Tensor codes;
  /// 4 bits: one per block; float32, or uint8 if nested. 8 bits: float32 [out], the largest
  /// magnitude of each row.
  Tensor scales;
  Tensor values;         // 4 bits: float32 [16], value of each code
  Tensor nested_scales;  // float32 [ceil(blocks / kNestedBlock)]
  Tensor nested_values;  // float32 [256]
  float nested_offset = 0;

  int64_t blocks() const { return (out * in + format.block_size - 1) / format.block_size; }
};

/// Returns the 16 values of a 4-bit kind, indexed by code.
const std::array<float, 16>& values_of(PackedKind kind);
/// Returns the 256 values of nested scales in ascending order (Dettmers et al., "8-bit Optimizers
/// via Block-wise Quantization", 2022, 2.2), rounded as in torch's vectorized loops.
const std::array<float, 256>& nested_values();

/// Quantizes a weight [out, in] of any floating-point type. Sets the format's type to that of the
/// weight.
PackedMatrix quantize(const Tensor& weight, PackedFormat format);
/// Applies double quantization to block scales, float32 [n]: sets `scales` and the nested members.
void nest_scales(PackedMatrix& matrix, const Tensor& scales);
/// Returns the scales of all blocks in float32; nested scales are dequantized.
Tensor block_scales(const PackedMatrix& matrix);
/// Dequantizes to float32 [out, in]. Values are first rounded to the format's type.
Tensor dequantize(const PackedMatrix& matrix);

}  // namespace lockstep::ops
