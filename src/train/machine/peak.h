// Peak rate of this machine's matrix products, the reference for a step's MFU.
#pragma once

#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "comm/communicator.h"

namespace lockstep::train {

/// Measures floating-point operations per second of square matrix products of this type, on all
/// ranks at once, summed over the ranks. On GPUs, measures for a fifth of a second and uses the
/// median run. On CPUs, measures for a shorter time and uses the fastest run, because other
/// processes may briefly take a core. Every rank must call.
double measure_peak(comm::Communicator& communicator, c10::Device device, c10::ScalarType type);

/// Returns the rate of the median run. `seconds` has one entry per run of `operations` (at least
/// one). A step's products run at a steady clock rate, not at the momentary maximum.
double usual_rate(double operations, std::vector<double> seconds);

}  // namespace lockstep::train
