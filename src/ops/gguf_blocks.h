// Block quantization of GGUF files (ggml's types): runs of a row's values that share scales, in
// llama.cpp's layouts.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Type numbers as in GGUF files.
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,  // block of 32: a scale, and 4-bit codes around zero
  kQ5_0 = 6,  // the same with 5-bit codes
  kQ5_1 = 7,  // a scale and a minimum, and 5-bit codes above it
  kQ8_0 = 8,  // a scale, and 8-bit codes around zero
  // Blocks of 256 in eight parts (Q6_K: sixteen) whose scales are 6-bit (8-bit) codes themselves:
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
};

struct GgufLayout {
  std::string_view name;
  int64_t elements;  // elements per block
  int64_t bytes;
};
const GgufLayout& layout_of(GgufType type);
/// Largest magnitude that every type except kF32 can represent: their scales are float16.
inline constexpr double kLargestInBlocks = 65504;

/// Converts values (float32, contiguous, on the CPU, with rows of whole blocks) to uint8 [bytes].
/// Codes of Q8_0, Q4_0, Q5_0 and Q5_1 are rounded with a scale from the block's extremes. The other
/// types try several step sizes and use the one with the least squared error, weighted by
/// magnitude.
at::Tensor to_blocks(const at::Tensor& values, GgufType type);

}  // namespace lockstep::ops
