// Weight quantization settings of a configuration.
#pragma once

#include <optional>

#include "config/core/config.h"
#include "model/model_config.h"
#include "model/quantization.h"

namespace lockstep::plan {

/// Returns the settings of the section, or nullopt if bits is not set.
std::optional<model::Quantization> quantization_of(const config::QuantizationSection& section);

/// Returns the quantization saved with the model, or the requested one if the model is not
/// quantized.
std::optional<model::Quantization> packed_as(
    const model::ModelConfig& folder, const config::QuantizationSection& asked);

}  // namespace lockstep::plan
