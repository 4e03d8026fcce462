// Loads the code that a process needs on this processor, before it loads a model.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "model/model_config.h"

namespace lockstep::train {

/// Runs a step of a small model of the same family on the CPU, which takes milliseconds. The
/// process's memory then includes the code that libraries load and generate for this processor, and
/// their threads. `rows` and `length` are those of the micro-batch; a few rows are sufficient. Does
/// not affect other random number generators. Returns true if all shapes match those of the run;
/// otherwise libraries will generate further kernels.
bool warm_up(const model::ModelConfig& model, c10::ScalarType type, int64_t rows, int64_t length);

}  // namespace lockstep::train
