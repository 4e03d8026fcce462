// GGUF blocks, decoded one value at a time by ggml's description of the formats: quantization
// errors, and rows of equal values.
#include "ops/gguf_blocks.h"

#include <cstring>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/testing.h"

namespace lockstep::ops {
namespace gguf_blocks_test {

float half_at(const uint8_t* at) {
  c10::Half half;
  std::memcpy(&half, at, sizeof half);
  return half;
}

/// Returns scale or offset `part` of the eight of a Q4_K or Q5_K block.
float slope_at(const uint8_t* packed, size_t part) {
  return static_cast<float>(part < 4 ? packed[part] & 63 : ((packed[part % 4] >> 6) << 4));
}

float number_at(const uint8_t* block, GgufType type, size_t i) {
  const uint8_t* const at = block;
  const auto nibble = [&](const uint8_t* codes) {
    return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
  };
  const auto fifth = [&](const uint8_t* bits) { return ((bits[i / 8] >> (i % 8)) & 1) << 4; };
  switch (type) {
    case GgufType::kQ8_0:
      return half_at(at) * static_cast<int8_t>(at[2 + i]);
    case GgufType::kQ4_0:
      return half_at(at) * static_cast<float>(nibble(at + 2) - 8);
    case GgufType::kQ5_0:
      return half_at(at) * static_cast<float>((nibble(at + 6) | fifth(at + 2)) - 16);
    case GgufType::kQ5_1:
      return half_at(at) * static_cast<float>(nibble(at + 8) | fifth(at + 4)) + half_at(at + 2);
    case GgufType::kQ6_K: {
      const size_t half = i / 128, inside = i % 128;
      const uint8_t low = at[half * 64 + inside % 64];
      const int high = at[128 + half * 32 + inside % 32] >> (inside / 32 * 2);
      const int code = (inside < 64 ? low & 15 : low >> 4) | ((high & 3) << 4);
      return half_at(at + 208) * static_cast<int8_t>(at[192 + i / 16]) *
             static_cast<float>(code - 32);
    }
    default: {
      const bool has_fifth = type == GgufType::kQ5_K;
      const size_t part = i / 32, inside = i % 32;
      const uint8_t byte = at[(has_fifth ? 48 : 16) + part / 2 * 32 + inside];
      const int code = (part % 2 == 0 ? byte & 15 : byte >> 4) |
                       (has_fifth ? ((at[16 + inside] >> part) & 1) << 4 : 0);
      const uint8_t last = part < 4 ? 0 : at[4 + 8 + part % 4];
      const float scale = slope_at(at + 4, part) + static_cast<float>(last & 15);
      const float fall = slope_at(at + 8, part) + static_cast<float>(last >> 4);
      return half_at(at) * scale * static_cast<float>(code) - half_at(at + 2) * fall;
    }
  }
}

Tensor unpacked(const Tensor& values, GgufType type) {
  const Tensor bytes = to_blocks(values, type);
  const GgufLayout& layout = layout_of(type);
  EXPECT_EQ(bytes.numel(), values.numel() / layout.elements * layout.bytes);
  Tensor result = at::empty_like(values);
  for (int64_t i = 0; i < values.numel(); ++i) {
    result.mutable_data_ptr<float>()[i] = number_at(
        bytes.const_data_ptr<uint8_t>() + i / layout.elements * layout.bytes,
        type,
        static_cast<size_t>(i % layout.elements));
  }
  return result;
}

struct Loss {
  GgufType type;
  double most;  // maximum relative error for normally distributed values
};
constexpr Loss kLosses[] = {
    {GgufType::kQ8_0, 0.006},
    {GgufType::kQ6_K, 0.02},
    {GgufType::kQ5_K, 0.04},
    {GgufType::kQ5_1, 0.045},
    {GgufType::kQ5_0, 0.05},
    {GgufType::kQ4_K, 0.075},
    {GgufType::kQ4_0, 0.095}};

TEST(GgufBlocks, LoseNoMoreThanTheirStepsAndHalvesAreExact) {
  const Tensor values = random({5, 512});
  for (const auto& [type, most] : kLosses) {
    for (const double shift : {0.0, 2.0}) {  // also all-positive values
      const Tensor shifted = values + shift;
      const double lost = (unpacked(shifted, type) - shifted).norm().item<double>();
      EXPECT_LT(lost / shifted.norm().item<double>(), most) << layout_of(type).name << shift;
      EXPECT_GT(lost, 0) << layout_of(type).name;
    }
  }
  EXPECT_TRUE(
      to_blocks(values, GgufType::kF16).view(at::kHalf).equal(values.flatten().to(at::kHalf)));
}

TEST(GgufBlocks, NumbersThatAreAllAlikeStayWhatTheyAre) {
  for (const auto& [type, _] : kLosses) {
    for (const float value : {0.0F, 1.5F, -0.75F, 1e-30F, 60000.0F}) {
      const Tensor values = at::full({1, 256}, value);
      const double error = (unpacked(values, type) - values).abs().max().item<double>();
      EXPECT_LE(error, 0.01 * std::abs(value) + 1e-7) << layout_of(type).name << " " << value;
    }
  }
}

TEST(GgufBlocks, RowsThatAreNoWholeBlocksAreRefused) {
  EXPECT_THROW((void)to_blocks(random({2, 96}), GgufType::kQ4_K), Error);
}

}  // namespace gguf_blocks_test
}  // namespace lockstep::ops
