// Builds the planner's model description from a configuration.
#include "plan/from_config/planned_model.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "config/tasks.h"
#include "model/freeze.h"
#include "model/source.h"

namespace lockstep::plan {

namespace {

model::ModelConfig find_folder(const std::string& name, const std::vector<std::string>& presets) {
  try {
    return model::find_model(name).config;
  } catch (const Error& error) {
    if (std::filesystem::exists(name)) {  // the model is damaged, not missing
      throw;
    }
    throw Error(
        error.kind(),
        error.message(),
        fmt::format(
            "{}; or use a preset: {}.{}",
            error.remedy(),
            fmt::join(presets, ", "),
            did_you_mean(name, presets)));
  }
}

}  // namespace

model::HeadSpec planned_head(const config::Config& config, const model::ModelConfig& model) {
  const std::vector<std::string>& fields = config.data.label_field;
  model::HeadSpec head{model::HeadSpec::Kind::kClassifier, config.task.labels};
  const bool is_the_models = model.head.classifies() && config.task.labels.empty();
  if (config.task.problem_type) {
    head.problem = *model::parse_problem_type(*config.task.problem_type);
  } else if (is_the_models) {
    head.problem = model.head.problem;
  } else if (fields.size() > 1 || !config.data.label_delimiter.empty()) {
    head.problem = model::ProblemType::kMultiLabel;
  }
  if (is_the_models) {
    head.labels = model.head.labels;
  } else if (head.labels.empty() && fields.size() > 1) {
    head.labels = fields;
  } else if (head.labels.empty()) {
    head.labels = head.problem == model::ProblemType::kRegression
                      ? std::vector<std::string>{"LABEL_0"}
                      : std::vector<std::string>{"LABEL_0", "LABEL_1"};
  }
  return head;
}

model::ModelConfig planned_model(const config::Config& config) {
  const std::string& name = config.model.preset.empty() ? config.model.path : config.model.preset;
  if (name.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "a model is required",
        "--model gpt2-xl, a config.json, or a Hugging Face folder");
  }
  const std::vector<std::string> presets = model::preset_names();
  const bool is_preset = !config.model.preset.empty() ||
                         std::find(presets.begin(), presets.end(), name) != presets.end();
  model::ModelConfig model = is_preset ? model::preset(name) : find_folder(name, presets);
  model::check_positions(model, config.data.sequence_length);
  if (config::unlearns(config.task) && config::method_of(config.unlearning).steers) {
    return model::with_head(
        model, model::states_head(model::layers_through(model, config.unlearning.module_regex)));
  }
  return config::classifies(config, model.head.classifies())
             ? model::with_head(model, planned_head(config, model))
             : model::with_head(model, {});
}

}  // namespace lockstep::plan
