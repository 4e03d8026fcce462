// Peak rate of this machine's matrix products. MFU is relative to it.
#pragma once

#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "comm/communicator.h"

namespace lockstep::train {

/// Measures the floating-point operations per second of square matrix products of this type on all
/// ranks at once, and returns the sum over the ranks. On GPUs, measures for a fifth of a second and
/// uses the median run. On CPUs, measures for a shorter time and uses the fastest run, because
/// other processes may briefly use a core. Must be called on every rank.
double measure_peak(comm::Communicator& communicator, c10::Device device, c10::ScalarType type);

/// Returns the rate of the median run. `seconds` has one entry for each run of `operations`, at
/// least one. The median is used because products in training run at a steady clock rate, not at
/// the momentary maximum.
double usual_rate(double operations, std::vector<double> seconds);

}  // namespace lockstep::train
