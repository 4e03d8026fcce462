// Matrices of 4 and 8 bits a weight, bit for bit as bitsandbytes' CUDA kernels make them (Dettmers
// et al., "LLM.int8()", 2022; "QLoRA", 2023). What its CPU kernels do otherwise is not copied.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

enum class PackedKind {
  kNf4,   // 16 values that a normal distribution takes equally often (QLoRA, appendix E)
  kFp4,   // 16 values: a sign, two bits of exponent, one of mantissa
  kInt8,  // -127 to 127, with a scale a row
};

/// Of 4 bits, so many scales are themselves scaled together (double quantization).
inline constexpr int64_t kNestedBlock = 256;

/// How a matrix is packed. Of 8 bits the kind alone matters.
struct PackedFormat {
  PackedKind kind = PackedKind::kNf4;
  int64_t block_size = 64;           // consecutive elements of the flattened matrix with one scale
  bool is_nested = false;            // the scales are packed too, in 8 bits
  at::ScalarType type = at::kFloat;  // that the values are rounded to: the type that was packed

  bool operator==(const PackedFormat&) const = default;
};

/// A whole matrix [out, in], its tensors as bitsandbytes' files hold them, on the CPU.
struct PackedMatrix {
  PackedFormat format;
  int64_t out = 0, in = 0;
  /// 4 bits: uint8 [ceil(out in / 2)], the first of two elements in the high half of a byte.
  /// 8 bits: int8 [out, in].
  Tensor codes;
  /// Of each block float32, nested uint8; of 8 bits float32 [out], the largest magnitudes.
  Tensor scales;
  Tensor values;         // 4 bits: float32 [16], what the codes stand for
  Tensor nested_scales;  // float32 [ceil(blocks / kNestedBlock)]
  Tensor nested_values;  // float32 [256]
  float nested_offset = 0;

  int64_t blocks() const { return (out * in + format.block_size - 1) / format.block_size; }
};

/// The 16 values of a kind of 4 bits, by code.
const std::array<float, 16>& values_of(PackedKind kind);
/// The 256 values of nested scales, ascending (Dettmers et al., "8-bit Optimizers via Block-wise
/// Quantization", 2022, 2.2), as torch's vector loops make them.
const std::array<float, 256>& nested_values();

/// weight [out, in] of any floating type -> the matrix; the format's type becomes the weight's.
PackedMatrix quantize(const Tensor& weight, PackedFormat format);
/// Double quantization of the scales of blocks, float32 [n]: sets `scales` and what is nested.
void nest_scales(PackedMatrix& matrix, const Tensor& scales);
/// The scales of all blocks, whatever they are packed in: float32.
Tensor block_scales(const PackedMatrix& matrix);
/// -> float32 [out, in], rounded to the format's type on the way.
Tensor dequantize(const PackedMatrix& matrix);

}  // namespace lockstep::ops
