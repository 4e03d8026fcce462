// The keys of config.json that mixtures of experts have.
#pragma once

#include "model/config_reader.h"
#include "model/model_config.h"

namespace lockstep::model {

/// Experts, how tokens choose them, and what else these families have of their own: norms and a
/// limit of queries, keys and values. The sizes are known.
void parse_mixture(ConfigReader& reader, ModelConfig& config);

}  // namespace lockstep::model
