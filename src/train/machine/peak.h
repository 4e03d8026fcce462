// What this machine's matrix products can do: the measure of a step's speed.
#pragma once

#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "comm/communicator.h"

namespace lockstep::train {

/// Floating-point operations a second of square matrix products of this type, all ranks at once,
/// summed over them: measured, for a fifth of a second on GPUs, by the usual run; for less on CPUs,
/// by the best one, since others may have a core for a moment. Every rank must call.
double measure_peak(comm::Communicator& communicator, c10::Device device, c10::ScalarType type);

/// Of runs of so many operations that took these seconds, at least one: what the middle one did. A
/// step's products run at a steady clock, and not at that of a moment's best.
double usual_rate(double operations, std::vector<double> seconds);

}  // namespace lockstep::train
