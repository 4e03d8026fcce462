// Adapter settings of a configuration and adapter parameter counts.
#pragma once

#include "config/core/config.h"
#include "model/lora_config.h"
#include "model/model_config.h"

namespace lockstep::plan {

/// Returns the settings in lora.config or in the folder lora.adapter, overridden by the keys of the
/// section.
model::LoraConfig lora_config_of(const config::LoraSection& section);

/// Returns the number of trained parameters relative to adapters of the same rank on every linear
/// layer of the blocks. Below 1 if some layers have no adapter, above 1 if other parameters are
/// also trained, and 1 if lora.adapter is not a PEFT folder. Throws Error (config) if the section
/// does not match the model.
double adapter_share(const config::LoraSection& section, const model::ModelConfig& model);

}  // namespace lockstep::plan
