// Numbers of 8 bits whose steps grow with their size (Dettmers et al., "8-bit Optimizers via
// Block-wise Quantization", 2022, 2.2), scaled by the largest magnitude of each block of 256.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::optim {

inline constexpr int64_t kQuantizedBlock = 256;

/// 256 numbers in [-1, 1] (or [0, 1]), ascending, and what nearest() needs.
class DynamicMap {
 public:
  static const DynamicMap& of_signed();    // 7 decades, 0, 1
  static const DynamicMap& of_unsigned();  // with twice as many in each decade

  const std::array<float, 256>& values() const { return values_; }
  /// Between value i and i + 1, of which the first is the nearest up to there; the last is
  /// infinite.
  const std::array<float, 256>& middles() const { return middles_; }
  /// The index of the value nearest to x, which must be in [-1, 1].
  uint8_t nearest(float x) const;

 private:
  enum class Sign { kSigned, kUnsigned };
  explicit DynamicMap(Sign sign);

  std::array<float, 256> values_;
  std::array<float, 256> middles_;
  std::array<uint8_t, 65536>
      candidates_;  // by a float's upper 16 bits: the nearest to the least it may be
};

/// A block of up to 256: dequantized(codes, scale)[i] = map.values()[codes[i]] * scale.
void quantize_block(
    const DynamicMap& map, const float* values, int64_t count, uint8_t* codes, float& scale);
/// Its scale, and its codes by the scale of a block that these are a part of.
float largest_magnitude(const float* values, int64_t count);
void quantize_by(
    const DynamicMap& map, const float* values, int64_t count, float scale, uint8_t* codes);

}  // namespace lockstep::optim
