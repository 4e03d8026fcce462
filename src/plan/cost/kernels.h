// Time of one operation on a device: a roofline model with size-dependent efficiency.
#pragma once

#include "plan/machines/calibration.h"
#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

inline constexpr double kHalf = 2;  // bytes per 16-bit number

/// Returns the time of `count` batched products [m, k] × [k, n] in 32, 16 or 8 bits. Processors
/// execute tiles in waves, and each wave adds the time of its first loads and last stores. Products
/// are slower if sizes are not multiples of 64 or if they are limited by memory bandwidth.
double product_seconds(
    const Physics& physics,
    const Device& device,
    Precision precision,
    double count,
    double m,
    double n,
    double k);

/// Returns a device's rate relative to the same chip without a power limit.
double power_share(const Physics& physics, const Device& device);

/// Returns the efficiency of kernels in this precision.
const Efficiency& efficiency_of(const Device& device, Precision precision);

/// Returns the time of an element-wise kernel that moves `bytes`.
double memory_seconds(
    const Device& device, double bytes, Precision precision = Precision::kMixed16);
/// Returns the time of a copy that reads and writes `bytes` in total.
double copy_seconds(const Device& device, double bytes);

/// Bytes that element-wise kernels read and write.
struct ElementwiseBytes {
  double activation = 0;  // MLP activation function
  double scores = 0;      // attention scores in memory
  double others = 0;
};
double elementwise_seconds(
    const Device& device, const ElementwiseBytes& bytes, Precision precision);

}  // namespace lockstep::plan
