// Time of one operation on a device: a roofline whose efficiency depends on the size.
#pragma once

#include "plan/machines/calibration.h"
#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

inline constexpr double kHalf = 2;  // bytes of a 16-bit number

/// [m, k] × [k, n], `count` of them at a time, in 32, 16 or 8 bits. Tiles are counted in waves over
/// the processors, each wave has its first loads and last stores besides, sizes that are no
/// multiple of 64 cost, and memory may decide.
double product_seconds(
    const Physics& physics,
    const Device& device,
    Precision precision,
    double count,
    double m,
    double n,
    double k);

/// The rate of a device over that of its chip without a limit of power.
double power_share(const Physics& physics, const Device& device);

/// What kernels of this type reach.
const Efficiency& efficiency_of(const Device& device, Precision precision);

/// An element-wise kernel that moves `bytes`.
double memory_seconds(
    const Device& device, double bytes, Precision precision = Precision::kMixed16);
/// A plain copy that reads and writes `bytes` in all.
double copy_seconds(const Device& device, double bytes);

/// What element-wise kernels read and write.
struct ElementwiseBytes {
  double activation = 0;  // inside the MLP
  double scores = 0;      // those in memory
  double others = 0;
};
double elementwise_seconds(
    const Device& device, const ElementwiseBytes& bytes, Precision precision);

}  // namespace lockstep::plan
