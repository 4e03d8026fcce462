// Block quantization of GGUF files (ggml's types). A block is a run of values of a row that share
// scales. The layouts are those of llama.cpp.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Type numbers in GGUF files.
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,  // block of 32 values: a scale, and signed 4-bit codes
  kQ5_0 = 6,  // same as kQ4_0 with 5-bit codes
  kQ5_1 = 7,  // a scale and a minimum, and unsigned 5-bit codes
  kQ8_0 = 8,  // a scale, and signed 8-bit codes
  // Blocks of 256 values in eight groups (Q6_K: sixteen). The scales of the groups are themselves
  // 6-bit (Q6_K: 8-bit) codes.
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
};

struct GgufLayout {
  std::string_view name;
  int64_t elements;  // number of values per block
  int64_t bytes;
};
const GgufLayout& layout_of(GgufType type);
/// Largest magnitude that all types except kF32 can represent, because their scales are float16.
inline constexpr double kLargestInBlocks = 65504;

/// Converts values (contiguous float32 on the CPU, with rows of whole blocks) to uint8 [bytes].
/// Q8_0, Q4_0, Q5_0 and Q5_1 derive the scale from the extremes of the block. The other types try
/// several step sizes and use the one with the smallest squared error, weighted by magnitude.
at::Tensor to_blocks(const at::Tensor& values, GgufType type);

}  // namespace lockstep::ops
