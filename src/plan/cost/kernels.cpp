// Implements a roofline model of products, element-wise kernels and copies.
#include "plan/cost/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::plan {

namespace {

struct Tile {
  double rows, columns;
  double share;  // rate relative to the largest tile; smaller tiles read more per operation
};
constexpr std::array<Tile, 4> kTiles{
    {{256, 128, 1.0}, {128, 128, 0.93}, {128, 64, 0.78}, {64, 64, 0.55}}};

// Eight 16-bit elements are 16 bytes, the smallest load of matrix units.
constexpr int64_t kLeastAligned = 8;
constexpr int64_t kWellAligned = 64;

// Returns the largest power of two, up to 64, that divides both sizes.
int64_t alignment(double n, double k) {
  const auto of_size = [](double size) {
    const auto whole = static_cast<int64_t>(size);
    int64_t power = 1;
    while (power < kWellAligned && whole % (power * 2) == 0) {
      power *= 2;
    }
    return power;
  };
  return std::min(of_size(n), of_size(k));
}

// Returns the rate of a product that keeps all processors busy.
double product_rate(
    const Physics& physics, const Device& device, Precision precision, double n, double k) {
  const double power = power_share(physics, device);
  if (precision == Precision::kFloat32) {
    return device.flops32 * device.efficiency.matrix16 * power;
  }
  const int64_t aligned = alignment(n, k);
  if (aligned < kLeastAligned) {
    return device.flops32 * physics.unaligned * power;
  }
  const double steps = std::log2(static_cast<double>(kWellAligned / aligned)) / 3;
  const double share = 1 - (1 - physics.misaligned) * steps;
  const bool eight = precision == Precision::kFloat8 && device.flops8 > 0;
  return (eight ? device.flops8 * device.efficiency.matrix8
                : device.flops16 * device.efficiency.matrix16) *
         share * power;
}

}  // namespace

double product_seconds(
    const Physics& physics,
    const Device& device,
    Precision precision,
    double count,
    double m,
    double n,
    double k) {
  if (device.measured) {
    const bool wide = precision == Precision::kFloat32;
    const ShortSides& sides = wide ? device.short32 : device.short16;
    const double peak = wide ? device.flops32 : device.flops16;
    return count * 2 * m * n * k / peak *
               (1 + sides.rows / m + sides.columns / n + sides.inner / k) +
           device.kernel_seconds;
  }
  const double rate = product_rate(physics, device, precision, n, k);
  const double processors = device.processors;
  double compute = 1e30;
  for (const Tile& tile : kTiles) {
    const double tiles = count * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    // A fraction of the idle processors in the last wave is wasted; split tiles use the others.
    const double even = std::max(1.0, tiles / processors);
    const double waves = even + (std::ceil(tiles / processors) - even) * physics.wave_waste;
    const double flops = processors * tile.rows * tile.columns * k * 2;
    compute = std::min(compute, waves * (flops / (rate * tile.share) + physics.tile_seconds));
  }
  const double width = precision == Precision::kFloat32 ? 4 : kHalf;
  const double bytes = count * width * (m * k + k * n + m * n);
  return std::max(compute, memory_seconds(device, bytes)) + physics.kernel_seconds;
}

double power_share(const Physics& physics, const Device& device) {
  return device.chip_watts > device.watts
             ? std::pow(device.watts / device.chip_watts, physics.power_exponent)
             : 1;
}

const Efficiency& efficiency_of(const Device& device, Precision precision) {
  return device.measured && precision == Precision::kFloat32 ? device.efficiency32
                                                             : device.efficiency;
}

double memory_seconds(const Device& device, double bytes, Precision precision) {
  return bytes / (device.memory_bandwidth * efficiency_of(device, precision).memory);
}

double copy_seconds(const Device& device, double bytes) {
  return device.measured ? bytes / device.memory_bandwidth : memory_seconds(device, bytes);
}

double elementwise_seconds(
    const Device& device, const ElementwiseBytes& bytes, Precision precision) {
  const double activation = memory_seconds(device, bytes.activation, precision) /
                            efficiency_of(device, precision).activation;
  // Measured element-wise rates are from kernels with more computation per element than sums, masks
  // and softmax of scores. The latter reach the copy bandwidth.
  return (device.measured
              ? memory_seconds(device, bytes.others, precision) + copy_seconds(device, bytes.scores)
              : memory_seconds(device, bytes.others + bytes.scores, precision)) +
         activation;
}

}  // namespace lockstep::plan
