// Adapters of a configuration: PEFT settings and parameter counts.
#pragma once

#include "config/core/config.h"
#include "model/lora_config.h"
#include "model/model_config.h"

namespace lockstep::plan {

/// Returns the settings of lora.config, or of the file in the folder lora.adapter, overridden by
/// the keys of the section.
model::LoraConfig lora_config_of(const config::LoraSection& section);

/// Returns the number of trained parameters divided by that of adapters of the same rank on every
/// linear layer of the blocks: below 1 if some layers have no adapter, above 1 if other parameters
/// are also trained, 1 if lora.adapter is not a PEFT folder. Throws Error (config) if the section
/// does not match the model.
double adapter_share(const config::LoraSection& section, const model::ModelConfig& model);

}  // namespace lockstep::plan
