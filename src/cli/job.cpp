#include "cli/job.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "model/source.h"
#include "train/classifier_task.h"

namespace lockstep::cli {

namespace {

model::ModelConfig find_folder(const std::string& name, const std::vector<std::string>& presets) {
  try {
    return model::find_model(name).config;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) {
      throw;
    }
    throw Error(
        error.kind(),
        error.message(),
        fmt::format(
            "{}; or give a preset: {}.{}",
            error.remedy(),
            fmt::join(presets, ", "),
            did_you_mean(name, presets)));
  }
}

}  // namespace

model::ModelConfig planned_model(const config::Config& config) {
  const std::string& name = config.model.preset.empty() ? config.model.path : config.model.preset;
  if (name.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "no model is given",
        "--model gpt2-xl, a config.json, or a Hugging Face folder");
  }
  const std::vector<std::string> presets = model::preset_names();
  const bool is_preset = !config.model.preset.empty() ||
                         std::find(presets.begin(), presets.end(), name) != presets.end();
  model::ModelConfig model = is_preset ? model::preset(name) : find_folder(name, presets);
  model::check_positions(model, config.data.sequence_length);
  return model::with_head(model, train::planned_task(config, model).head);
}

}  // namespace lockstep::cli
