// Reads adapter settings and counts adapter parameters for the planner.
#include "plan/from_config/adapters.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "config/core/scalar.h"
#include "model/adapters.h"
#include "plan/workload/job.h"

namespace lockstep::plan {
namespace {

/// Overrides settings from the file with the keys that are set.
void take_keys(const config::LoraSection& section, model::LoraConfig& config) {
  const auto take = [](const auto& given, auto& value) { value = given.value_or(value); };
  take(section.r, config.r);
  take(section.lora_alpha, config.lora_alpha);
  take(section.lora_dropout, config.lora_dropout);
  take(section.use_rslora, config.use_rslora);
  take(section.use_dora, config.use_dora);
  take(section.ensure_weight_tying, config.ensure_weight_tying);
  take(section.init_lora_weights, config.init_lora_weights);
  const std::vector<std::string>& targets = section.target_modules;
  if (targets == std::vector<std::string>{"all-linear"}) {
    config.target_modules = {};
    config.targets_all_linear = true;
  } else if (!targets.empty()) {
    config.target_modules = model::parse_module_names("lora.target_modules", targets);
    config.targets_all_linear = false;
  }
  if (!section.exclude_modules.empty()) {
    config.exclude_modules =
        model::parse_module_names("lora.exclude_modules", section.exclude_modules);
  }
  const auto take_list = [](const auto& given, auto& value) {
    value = given.empty() ? value : given;
  };
  take_list(section.modules_to_save, config.modules_to_save);
  take_list(section.layers_pattern, config.layers_pattern);
  take_list(section.rank_pattern, config.rank_pattern);
  take_list(section.alpha_pattern, config.alpha_pattern);
  const auto integers = [](const std::vector<std::string>& words) {
    std::vector<int64_t> numbers;
    for (const std::string& word : words) {
      numbers.push_back(config::to_integer(word).value());
    }
    return numbers;
  };
  take_list(integers(section.layers_to_transform), config.layers_to_transform);
  if (!section.trainable_token_indices.empty()) {
    config.trainable_tokens = {{"", integers(section.trainable_token_indices)}};
  }
  if (section.bias) {
    using Bias = model::LoraConfig::Bias;
    config.bias = *section.bias == "all"         ? Bias::kAll
                  : *section.bias == "lora_only" ? Bias::kLoraOnly
                                                 : Bias::kNone;
  }
}

/// Returns the path of the adapter configuration in the folder lora.adapter.
std::filesystem::path saved_config(const config::LoraSection& section) {
  return std::filesystem::path(section.adapter) / model::kAdapterConfigName;
}

}  // namespace

model::LoraConfig lora_config_of(const config::LoraSection& section) {
  model::LoraConfig config;
  if (!section.adapter.empty() && std::filesystem::exists(saved_config(section))) {
    config = model::read_lora_config(saved_config(section));
  } else if (!section.config.empty()) {
    config = model::read_lora_config(section.config);
    config.base_model_name_or_path.clear();
    config.revision.clear();
  }
  take_keys(section, config);
  return config;
}

double adapter_share(const config::LoraSection& section, const model::ModelConfig& model) {
  if (!section.adapter.empty() && !std::filesystem::exists(saved_config(section))) {
    return 1;  // a run folder or an object store: the adapted layers are unknown
  }
  model::LoraConfig asked = lora_config_of(section);
  const auto rank = asked.r;
  const model::Adapters adapters = model::resolve_adapters(
      std::move(asked),
      model,
      section.adapter.empty() ? model::AdapterOrigin::kNew : model::AdapterOrigin::kSaved);
  Job job;
  job.model = model;
  job.adapter_rank = rank;
  return static_cast<double>(model::trained_count(adapters, model)) /
         adapter_parameters(job, count_parameters(model).blocks);
}

}  // namespace lockstep::plan
