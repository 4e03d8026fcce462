// Weights that are quantized to 4 or 8 bits.
#pragma once

#include <optional>

#include "config/core/config.h"
#include "model/model_config.h"
#include "model/quantization.h"

namespace lockstep::plan {

/// What the section asks for; nothing where it gives no bits.
std::optional<model::Quantization> quantization_of(const config::QuantizationSection& section);

/// What is packed of a model: the folder's own linears, else as it is asked for.
std::optional<model::Quantization> packed_as(
    const model::ModelConfig& folder, const config::QuantizationSection& asked);

}  // namespace lockstep::plan
