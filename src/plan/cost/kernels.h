// Time of one operation on a device: a roofline model with size-dependent efficiency.
#pragma once

#include "plan/machines/calibration.h"
#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

inline constexpr double kHalf = 2;  // bytes per 16-bit number

/// Returns the time of `count` batched products [m, k] × [k, n] in 32, 16 or 8 bits. Tiles are
/// executed in waves over the processors; each wave adds its first loads and last stores. Sizes
/// that are not multiples of 64 are slower, and memory bandwidth may be the limit.
double product_seconds(
    const Physics& physics,
    const Device& device,
    Precision precision,
    double count,
    double m,
    double n,
    double k);

/// Returns the rate of a device over that of the same chip without a power limit.
double power_share(const Physics& physics, const Device& device);

/// Returns the efficiency of kernels of this type.
const Efficiency& efficiency_of(const Device& device, Precision precision);

/// Returns the time of an element-wise kernel that moves `bytes`.
double memory_seconds(
    const Device& device, double bytes, Precision precision = Precision::kMixed16);
/// Returns the time of a copy that reads and writes `bytes` in total.
double copy_seconds(const Device& device, double bytes);

/// Bytes that element-wise kernels read and write.
struct ElementwiseBytes {
  double activation = 0;  // activation function of the MLP
  double scores = 0;      // scores in memory
  double others = 0;
};
double elementwise_seconds(
    const Device& device, const ElementwiseBytes& bytes, Precision precision);

}  // namespace lockstep::plan
