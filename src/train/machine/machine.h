// Measures what this machine does with the trainer's own operations.
#pragma once

#include "comm/communicator.h"
#include "plan/machine.h"

namespace lockstep::train {

/// Products of many shapes in both types, passes of small models, the optimizer, copies, and
/// all-reduces of many sizes, blocks of ring attention: the median of the runs within `seconds`
/// each, the slowest rank's. All ranks measure at the same time, as they will train. On the CPU.
/// Every rank must call; about 40 measurements.
plan::MachineSamples measure_machine(comm::Communicator& communicator, double seconds);

}  // namespace lockstep::train
