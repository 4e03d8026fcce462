// Memory that a process needs on this processor before it loads a model.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "model/model_config.h"

namespace lockstep::train {

/// Runs a step of a small model of this family on the CPU, in milliseconds. Afterwards the
/// process's memory includes the libraries' code for this processor, the kernels they generate and
/// their threads. `rows` and `length` are those of the micro-batch; a few rows are enough. Does not
/// advance any other random number generator. Returns true if all shapes match those of the run;
/// otherwise libraries will generate further kernels.
bool warm_up(const model::ModelConfig& model, c10::ScalarType type, int64_t rows, int64_t length);

}  // namespace lockstep::train
