// Adapters of a configuration, as PEFT settings and as parameter counts.
#pragma once

#include "config/core/config.h"
#include "model/lora_config.h"
#include "model/model_config.h"

namespace lockstep::plan {

/// The keys of the section, over what its file says: lora.config, or that in the folder
/// lora.adapter.
model::LoraConfig lora_config_of(const config::LoraSection& section);

/// The numbers that are trained, as a share of those that adapters of this rank beside every linear
/// of the blocks would have: below 1 where some linears have none, above it where other parameters
/// are trained too; 1 where lora.adapter is no folder of PEFT's. Error (config) where the section
/// does not fit the model.
double adapter_share(const config::LoraSection& section, const model::ModelConfig& model);

}  // namespace lockstep::plan
