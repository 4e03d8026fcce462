// Adapter folders that the user gives as a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/core/config.h"

namespace lockstep::train {

/// Returns the base model of the adapter in `path`: an adapter's folder, or an output_dir whose
/// latest checkpoint is one. Returns nullopt if `path` is anything else. The base that
/// adapter_config.json names is looked for in the adapter's folder, if relative, then as a path and
/// in the Hugging Face cache. Throws Error (config, data) if it is missing.
std::optional<std::string> base_of_adapter(const std::string& path);

/// If `model` is an adapter, replaces it by its base and adds it to `adapters`. Throws Error
/// (config) if there are other adapters, and like base_of_adapter().
void use_adapter_folder(std::string& model, std::vector<std::string>& adapters);
/// The same for model.path and lora.adapter.
void use_adapter_folder(config::Config& config);

}  // namespace lockstep::train
