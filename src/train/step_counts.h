// What the ranks tell each other once a step.
#pragma once

#include <cstdint>

#include "objective/objective.h"
#include "train/steering.h"

namespace lockstep::train {

/// Of all ranks, or of one.
struct StepCounts {
  objective::Counts step;   // what the loss is divided by
  int64_t tokens = 0;       // tokens that were read
  int64_t stop = 0;         // ranks that were asked to stop
  int64_t save = 0;         // ranks that were asked to save
  int64_t failed = 0;       // ranks whose save in the background failed
  int64_t peak_memory = 0;  // bytes, of the rank that uses most
  int64_t measure = 0;      // a part of the machine after this step
  Acts acts;                // that rank 0 was asked for
  bool alike = true;        // all ranks have micro-batches of the same shapes
};

}  // namespace lockstep::train
