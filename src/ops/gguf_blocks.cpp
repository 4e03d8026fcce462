// Quantization of weights to GGUF blocks.
#include "ops/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kGgufBlock = 32, kGgufLargeBlock = 256;
using GgufCodes = std::array<uint8_t, kGgufBlock>;

/// Writes the value as float16 and returns the rounded value.
float put_half(uint8_t* at, float value) {
  const c10::Half half(value);
  std::memcpy(at, &half, sizeof half);
  return half;
}

/// Returns 1 / value, or 0 if that is not finite.
float inverse_of(float value) {
  const float inverse = 1 / value;
  return std::isfinite(inverse) ? inverse : 0;
}

uint8_t code_of(float value, int most) {
  return static_cast<uint8_t>(std::clamp(std::nearbyint(value), 0.0F, static_cast<float>(most)));
}

float extreme_of(std::span<const float> numbers) {
  return *std::max_element(
      numbers.begin(), numbers.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
}

/// Writes the low four bits of the codes. The codes of the first half of the block are in the low
/// halves of the bytes.
void put_low_bits(uint8_t* at, const GgufCodes& codes) {
  for (size_t i = 0; i < 16; ++i) {
    at[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] << 4));
  }
}

void put_fifth_bits(uint8_t* at, const GgufCodes& codes) {
  uint32_t bits = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    bits |= static_cast<uint32_t>(codes[i] >> 4) << i;
  }
  std::memcpy(at, &bits, sizeof bits);
}

/// Packs Q4_0 and Q5_0. The value with the largest magnitude gets the lowest code.
template <int kBits>
void pack_around_zero(const float* numbers, uint8_t* at) {
  constexpr int kZero = 1 << (kBits - 1);
  const float scale = extreme_of({numbers, kGgufBlock}) / static_cast<float>(-kZero);
  const float inverse = inverse_of(scale);
  GgufCodes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    const float code = numbers[i] * inverse + (static_cast<float>(kZero) + 0.5F);
    codes[i] = static_cast<uint8_t>(std::min(static_cast<int>(code), 2 * kZero - 1));
  }
  put_half(at, scale);
  if (kBits == 5) {
    put_fifth_bits(at + 2, codes);
  }
  put_low_bits(at + (kBits == 5 ? 6 : 2), codes);
}

void pack_q5_1(const float* numbers, uint8_t* at) {
  const auto [low, high] = std::minmax_element(numbers, numbers + kGgufBlock);
  const float scale = (*high - *low) / 31, inverse = inverse_of(scale);
  GgufCodes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] =
        static_cast<uint8_t>(std::min(static_cast<int>((numbers[i] - *low) * inverse + 0.5F), 31));
  }
  put_half(at, scale);
  put_half(at + 2, *low);
  put_fifth_bits(at + 4, codes);
  put_low_bits(at + 8, codes);
}

void pack_q8_0(const float* numbers, uint8_t* at) {
  const float scale = std::abs(extreme_of({numbers, kGgufBlock})) / 127,
              inverse = inverse_of(scale);
  put_half(at, scale);
  for (int64_t i = 0; i < kGgufBlock; ++i) {
    at[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(numbers[i] * inverse)));
  }
}

/// Returns the weights of the squared errors. Large values get larger weights, because their errors
/// affect results more.
template <size_t kCount>
std::array<float, kCount> weights_of(const float* numbers) {
  float squares = 0;
  for (size_t i = 0; i < kCount; ++i) {
    squares += numbers[i] * numbers[i];
  }
  const float size = std::sqrt(squares / static_cast<float>(kCount));
  std::array<float, kCount> weights;
  for (size_t i = 0; i < kCount; ++i) {
    weights[i] = size + std::abs(numbers[i]);
  }
  return weights;
}

/// Parameters of the dequantization scale * code - fall; both are non-negative.
struct Slope {
  float scale, fall;
};

/// Fits values to codes from 0 to `most`: tries several step sizes and, for each, the least-squares
/// line through its codes. Returns the best parameters.
Slope fit_slope(const float* numbers, int most) {
  const auto [least, greatest] = std::minmax_element(numbers, numbers + kGgufBlock);
  const float low = std::min(*least, 0.0F), range = *greatest - low;
  if (range <= 0) {
    return {0, -low};
  }
  const auto weights = weights_of<kGgufBlock>(numbers);
  Slope best{};
  float best_error = std::numeric_limits<float>::infinity();
  for (int size = -10; size <= 10; ++size) {
    const float inverse = (static_cast<float>(most) + 0.1F * static_cast<float>(size)) / range;
    std::array<float, kGgufBlock> codes;
    float w = 0, wc = 0, wcc = 0, wx = 0, wcx = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] =
          std::clamp(std::nearbyint((numbers[i] - low) * inverse), 0.0F, static_cast<float>(most));
      const float weighted = weights[i] * codes[i];
      w += weights[i];
      wc += weighted;
      wcc += weighted * codes[i];
      wx += weights[i] * numbers[i];
      wcx += weighted * numbers[i];
    }
    const float determinant = w * wcc - wc * wc;
    Slope slope{wcx * inverse_of(wcc), 0};
    if (determinant > 0 && wc * wcx > wcc * wx) {
      slope = {(w * wcx - wc * wx) / determinant, (wc * wcx - wcc * wx) / determinant};
    }
    float error = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      const float difference = slope.scale * codes[i] - slope.fall - numbers[i];
      error += weights[i] * difference * difference;
    }
    if (slope.scale >= 0 && error < best_error) {
      best = slope;
      best_error = error;
    }
  }
  return best;
}

/// Packs eight 6-bit scales and eight 6-bit offsets into 12 bytes.
void put_slopes(
    uint8_t* at, const std::array<uint8_t, 8>& scales, const std::array<uint8_t, 8>& falls) {
  for (size_t i = 0; i < 4; ++i) {
    at[i] = static_cast<uint8_t>(scales[i] | ((scales[i + 4] >> 4) << 6));
    at[4 + i] = static_cast<uint8_t>(falls[i] | ((falls[i + 4] >> 4) << 6));
    at[8 + i] = static_cast<uint8_t>((scales[i + 4] & 15) | ((falls[i + 4] & 15) << 4));
  }
}

/// Packs Q4_K and Q5_K.
template <int kBits>
void pack_slopes(const float* numbers, uint8_t* at) {
  constexpr int kMost = (1 << kBits) - 1;
  std::array<Slope, 8> slopes;
  Slope greatest{};
  for (size_t part = 0; part < slopes.size(); ++part) {
    slopes[part] = fit_slope(numbers + part * kGgufBlock, kMost);
    greatest.scale = std::max(greatest.scale, slopes[part].scale);
    greatest.fall = std::max(greatest.fall, slopes[part].fall);
  }
  const float scale_unit = put_half(at, greatest.scale / 63);
  const float fall_unit = put_half(at + 2, greatest.fall / 63);
  std::array<uint8_t, 8> scales, falls;
  uint8_t* const high = at + 16;                       // Q5_K only
  uint8_t* const low = kBits == 5 ? high + 32 : high;  // two groups per 32 bytes
  std::memset(high, 0, kBits == 5 ? 32 : 0);
  for (size_t part = 0; part < slopes.size(); ++part) {
    scales[part] = code_of(slopes[part].scale * inverse_of(scale_unit), 63);
    falls[part] = code_of(slopes[part].fall * inverse_of(fall_unit), 63);
    const float inverse = inverse_of(scale_unit * scales[part]), fall = fall_unit * falls[part];
    for (size_t i = 0; i < kGgufBlock; ++i) {
      const uint8_t code = code_of((numbers[part * kGgufBlock + i] + fall) * inverse, kMost);
      uint8_t& byte = low[part / 2 * 32 + i];
      byte = static_cast<uint8_t>(part % 2 == 0 ? code & 15 : byte | (code << 4));
      if (kBits == 5) {
        high[i] = static_cast<uint8_t>(high[i] | ((code >> 4) << part));
      }
    }
  }
  put_slopes(at + 4, scales, falls);
}

/// Returns the scale of 16 values with codes from -32 to 31, chosen as in fit_slope.
float fit_scale(const float* numbers) {
  constexpr size_t kCount = 16;
  const float extreme = extreme_of({numbers, kCount});
  if (extreme == 0) {
    return 0;
  }
  const auto weights = weights_of<kCount>(numbers);
  float best = 0, best_gain = -1;
  for (int size = -9; size <= 9; ++size) {
    const float inverse = -(32 + 0.1F * static_cast<float>(size)) / extreme;
    float wcc = 0, wcx = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const float code = std::clamp(std::nearbyint(numbers[i] * inverse), -32.0F, 31.0F);
      wcc += weights[i] * code * code;
      wcx += weights[i] * code * numbers[i];
    }
    // The squared error is that of all-zero codes minus this gain.
    const float gain = wcx * wcx * inverse_of(wcc);
    if (gain > best_gain) {
      best = wcx * inverse_of(wcc);
      best_gain = gain;
    }
  }
  return best;
}

void pack_q6_k(const float* numbers, uint8_t* at) {
  std::array<float, 16> scales;
  for (size_t part = 0; part < scales.size(); ++part) {
    scales[part] = fit_scale(numbers + part * 16);
  }
  uint8_t *const low = at, *const high = at + 128, *const parts = at + 192;
  const float unit = put_half(at + 208, extreme_of(scales) / -128);
  std::memset(at, 0, 192);
  for (size_t part = 0; part < scales.size(); ++part) {
    const float code = std::clamp(std::nearbyint(scales[part] * inverse_of(unit)), -128.0F, 127.0F);
    parts[part] = static_cast<uint8_t>(static_cast<int8_t>(code));
    const float inverse = inverse_of(unit * code);
    for (size_t i = 0; i < 16; ++i) {
      const size_t place = part * 16 + i, half = place / 128, inside = place % 128;
      const unsigned whole = code_of(numbers[place] * inverse + 32, 63);
      uint8_t& lows = low[half * 64 + inside % 64];
      lows = static_cast<uint8_t>(lows | ((whole & 15) << (inside < 64 ? 0 : 4)));
      uint8_t& highs = high[half * 32 + inside % 32];
      highs = static_cast<uint8_t>(highs | ((whole >> 4) << (inside / 32 * 2)));
    }
  }
}

struct GgufKind {
  GgufType type;
  GgufLayout layout;
  void (*pack)(const float* numbers, uint8_t* at);
};
constexpr std::array<GgufKind, 9> kGgufKinds{{
    {GgufType::kF32, {"F32", 1, 4}, nullptr},
    {GgufType::kF16, {"F16", 1, 2}, nullptr},
    {GgufType::kQ4_0, {"Q4_0", kGgufBlock, 18}, pack_around_zero<4>},
    {GgufType::kQ5_0, {"Q5_0", kGgufBlock, 22}, pack_around_zero<5>},
    {GgufType::kQ5_1, {"Q5_1", kGgufBlock, 24}, pack_q5_1},
    {GgufType::kQ8_0, {"Q8_0", kGgufBlock, 34}, pack_q8_0},
    {GgufType::kQ4_K, {"Q4_K", kGgufLargeBlock, 144}, pack_slopes<4>},
    {GgufType::kQ5_K, {"Q5_K", kGgufLargeBlock, 176}, pack_slopes<5>},
    {GgufType::kQ6_K, {"Q6_K", kGgufLargeBlock, 210}, pack_q6_k},
}};

const GgufKind& gguf_kind_of(GgufType type) {
  return *std::find_if(kGgufKinds.begin(), kGgufKinds.end(), [&](const GgufKind& kind) {
    return kind.type == type;
  });
}

}  // namespace

const GgufLayout& layout_of(GgufType type) {
  return gguf_kind_of(type).layout;
}

at::Tensor to_blocks(const at::Tensor& values, GgufType type) {
  const auto& [_, layout, pack] = gguf_kind_of(type);
  if (values.scalar_type() != at::kFloat || !values.is_contiguous() ||
      values.size(-1) % layout.elements != 0) {
    throw Error(ErrorKind::kInternal, "to_blocks requires float32 rows of whole blocks");
  }
  if (pack == nullptr) {
    return (type == GgufType::kF16 ? values.to(at::kHalf) : values).flatten().view(at::kByte);
  }
  const int64_t blocks = values.numel() / layout.elements;
  at::Tensor bytes = at::empty({blocks * layout.bytes}, at::kByte);
  const float* const from = values.const_data_ptr<float>();
  auto* const to = bytes.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, blocks, 64, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      pack(from + block * layout.elements, to + block * layout.bytes);
    }
  });
  return bytes;
}

}  // namespace lockstep::ops
