// 8-bit numbers whose spacing grows with their magnitude (Dettmers et al., "8-bit Optimizers via
// Block-wise Quantization", 2022, section 2.2), scaled by the largest magnitude of each block of
// 256.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::optim {

inline constexpr int64_t kQuantizedBlock = 256;

/// Map of 256 values in ascending order in [-1, 1] or [0, 1], with lookup tables for nearest().
class DynamicMap {
 public:
  static const DynamicMap& of_signed();    // 0, 1, and values in 7 decades of both signs
  static const DynamicMap& of_unsigned();  // twice as many values per decade

  const std::array<float, 256>& values() const { return values_; }
  /// Returns the midpoints between values i and i + 1. The last one is infinite.
  const std::array<float, 256>& middles() const { return middles_; }
  /// Returns the index of the value nearest to x, which must be in [-1, 1].
  uint8_t nearest(float x) const;

 private:
  enum class Sign { kSigned, kUnsigned };
  explicit DynamicMap(Sign sign);

  std::array<float, 256> values_;
  std::array<float, 256> middles_;  // midpoints of values i and i + 1; the last is infinite
  /// Indexed by the upper 16 bits of a float: index of the value that is nearest to the smallest
  /// float with these bits.
  std::array<uint8_t, 65536> candidates_;
};

/// Quantizes a block of up to 256 values, such that values[i] is approximately
/// map.values()[codes[i]] * scale.
void quantize_block(
    const DynamicMap& map, const float* values, int64_t count, uint8_t* codes, float& scale);
/// Return the scale of a block, and quantize its values, or a slice of them, by that scale.
float largest_magnitude(const float* values, int64_t count);
void quantize_by(
    const DynamicMap& map, const float* values, int64_t count, float scale, uint8_t* codes);

}  // namespace lockstep::optim
