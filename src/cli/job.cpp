#include "cli/job.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "model/source.h"

namespace lockstep::cli {

model::ModelConfig planned_model(const config::Config& config) {
  const std::string& name = config.model.preset.empty() ? config.model.path : config.model.preset;
  if (name.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "no model is given",
        "--model gpt2-xl, a config.json, or a Hugging Face folder");
  }
  const std::vector<std::string> presets = model::preset_names();
  if (!config.model.preset.empty() ||
      std::find(presets.begin(), presets.end(), name) != presets.end()) {
    return model::preset(name);
  }
  return model::find_model(name).config;
}

}  // namespace lockstep::cli
