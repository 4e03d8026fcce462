// Products in 8-bit floats, of a run.
#pragma once

#include <string>

#include "model/float8.h"
#include "parallel/model_spec.h"

namespace lockstep::train {

/// Error (environment): such products are asked for, and the model's device has none.
void check_float8(const parallel::ModelSpec& spec);

/// One line of how many there are, how they are scaled and where they are made.
std::string float8_text(
    const model::Float8& float8, const model::ModelConfig& model, c10::Device device);

}  // namespace lockstep::train
