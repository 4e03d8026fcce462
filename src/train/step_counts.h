// What the ranks tell each other once a step.
#pragma once

#include <cstdint>
#include <span>

#include "nn/forward_context.h"
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
  Acts acts;                // that rank 0 was asked for
  bool alike = true;        // all ranks have micro-batches of the same shapes
};

/// What the shapes of a rank's micro-batches follow from, as a number that a double holds.
int64_t shapes_of(std::span<const nn::ForwardInputs> inputs);

}  // namespace lockstep::train
