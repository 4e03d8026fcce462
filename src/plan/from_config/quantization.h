// 4-bit and 8-bit weights of a configuration.
#pragma once

#include <optional>

#include "config/core/config.h"
#include "model/model_config.h"
#include "model/quantization.h"

namespace lockstep::plan {

/// Returns the settings of the section; nullopt if bits is not set.
std::optional<model::Quantization> quantization_of(const config::QuantizationSection& section);

/// Returns the quantization of a model: that of its folder, otherwise the requested one.
std::optional<model::Quantization> packed_as(
    const model::ModelConfig& folder, const config::QuantizationSection& asked);

}  // namespace lockstep::plan
