// Built-in models as config.json strings. Internal to model.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::model {

using PresetTable = std::vector<std::pair<std::string, std::string>>;

/// Returns the presets of Gemma, Phi-3, Pythia, GPT-Neo, OLMo and GLM.
PresetTable further_presets();

}  // namespace lockstep::model
