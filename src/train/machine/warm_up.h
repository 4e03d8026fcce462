// What a process takes on this processor before it has a model.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "model/model_config.h"

namespace lockstep::train {

/// Computes a step of a small model of this family on the CPU, in milliseconds: the code that
/// libraries have for this processor, the kernels that they make for it and their threads are in
/// the process's memory from then on. `rows` and `length` are the micro-batch's; few of them are
/// enough. Draws no random numbers but its own. Whether all shapes were those that the run will
/// have: the kernels that libraries make are of a shape, and others are made beside them.
bool warm_up(const model::ModelConfig& model, c10::ScalarType type, int64_t rows, int64_t length);

}  // namespace lockstep::train
