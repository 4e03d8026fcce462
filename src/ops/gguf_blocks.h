// Weights as GGUF files hold them: runs of a row's numbers that share scales, in the layouts that
// llama.cpp computes with (ggml's types).
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// With their numbers in files.
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,  // 32 numbers: a scale, codes of 4 bits around zero
  kQ5_0 = 6,  // of 5 bits
  kQ5_1 = 7,  // a scale and a smallest value, codes of 5 bits above it
  kQ8_0 = 8,  // a scale, codes of 8 bits around zero
  // 256 numbers in eight parts (of Q6_K sixteen) whose scales are codes of 6 (8) bits themselves:
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
};

struct GgufLayout {
  std::string_view name;
  int64_t elements;  // of a block
  int64_t bytes;
};
const GgufLayout& layout_of(GgufType type);
/// The largest magnitude that all types but kF32 hold: their scales are float16.
inline constexpr double kLargestInBlocks = 65504;

/// values, float32 and contiguous on the CPU, whose rows are whole blocks -> uint8 [bytes]. Codes
/// of Q8_0, Q4_0, Q5_0 and Q5_1 are the nearest by the block's extremes; those of the others have
/// the least squared error, weighted by magnitudes, over some sizes of the steps between codes.
at::Tensor to_blocks(const at::Tensor& values, GgufType type);

}  // namespace lockstep::ops
