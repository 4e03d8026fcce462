// Float8 matrix products of a run.
#pragma once

#include <string>

#include "model/float8.h"
#include "parallel/model_spec.h"

namespace lockstep::train {

/// Throws Error (environment) if float8 products are requested and the model's device does not
/// support them.
void check_float8(const parallel::ModelSpec& spec);

/// Returns a description for the log: the number of float8 linears and blocks, and the scaling.
std::string float8_text(
    const model::Float8& float8, const model::ModelConfig& model, c10::Device device);

}  // namespace lockstep::train
