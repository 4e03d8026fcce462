// Dynamic 8-bit quantization map.
#include "optim/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::optim {
namespace {

constexpr int kDecades = 7;

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}

}  // namespace

DynamicMap::DynamicMap(Sign sign) {
  std::vector<float> values{0, 1};
  for (int decade = 0; decade < kDecades; ++decade) {
    // Midpoints of equal intervals of [0.1, 1], divided by a power of ten.
    const int intervals = 1 << (sign == Sign::kSigned ? decade : decade + 1);
    const double scale = std::pow(10.0, decade - (kDecades - 1));
    for (int i = 0; i < intervals; ++i) {
      const auto value = static_cast<float>((0.1 + 0.9 * (i + 0.5) / intervals) * scale);
      values.push_back(value);
      if (sign == Sign::kSigned) {
        values.push_back(-value);
      }
    }
  }
  std::sort(values.begin(), values.end());
  std::copy(values.begin(), values.end(), values_.begin());
  for (size_t i = 0; i < 255; ++i) {
    middles_[i] = 0.5F * (values_[i] + values_[i + 1]);
  }
  middles_[255] = std::numeric_limits<float>::infinity();
  for (uint32_t upper = 0; upper < candidates_.size(); ++upper) {
    // The smallest float with these upper bits. For negative floats, this is the one with the
    // largest magnitude.
    const bool negative = (upper & 0x8000U) != 0;
    const float least = std::bit_cast<float>((upper << 16) | (negative ? 0xffffU : 0U));
    const auto at = std::isnan(least)
                        ? middles_.begin()
                        : std::lower_bound(middles_.begin(), middles_.end() - 1, least);
    candidates_[upper] = static_cast<uint8_t>(at - middles_.begin());
  }
}

const DynamicMap& DynamicMap::of_signed() {
  static const DynamicMap map(Sign::kSigned);
  return map;
}

const DynamicMap& DynamicMap::of_unsigned() {
  static const DynamicMap map(Sign::kUnsigned);
  return map;
}

uint8_t DynamicMap::nearest(float x) const {
  size_t index = candidates_[bits_of(x) >> 16];
  while (x > middles_[index]) {
    ++index;
  }
  return static_cast<uint8_t>(index);
}

void quantize_block(
    const DynamicMap& map, const float* values, int64_t count, uint8_t* codes, float& scale) {
  scale = largest_magnitude(values, count);
  quantize_by(map, values, count, scale, codes);
}

float largest_magnitude(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(values[i]));
  }
  return largest;
}

void quantize_by(
    const DynamicMap& map, const float* values, int64_t count, float scale, uint8_t* codes) {
  const float inverse = scale > 0 ? 1.0F / scale : 0.0F;
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = map.nearest(std::clamp(values[i] * inverse, -1.0F, 1.0F));
  }
}

}  // namespace lockstep::optim
