// What this machine's matrix products can do at best: the measure of a step's speed.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "comm/communicator.h"

namespace lockstep::train {

/// Floating-point operations a second of square matrix products of this type, all ranks at once,
/// summed over them: measured, for about a fifth of a second. Every rank must call.
double measure_peak(comm::Communicator& communicator, c10::Device device, c10::ScalarType type);

}  // namespace lockstep::train
