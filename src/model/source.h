// Where a model comes from: a built-in name, a config.json, a Hugging Face folder, or a Hub name in
// the local cache.
#pragma once

#include <filesystem>
#include <string>

#include "base/hugging_face_cache.h"
#include "model/model_config.h"

namespace lockstep::model {

struct ModelSource {
  enum class Kind { kPreset, kConfigFile, kFolder, kHub };
  Kind kind = Kind::kPreset;
  std::string name;              // as the user gave it
  std::filesystem::path folder;  // of config.json, weights and tokenizer; empty for a preset
  bool has_weights = false;      // false: the weights are initialized at random
  ModelConfig config;
};

/// Finds what `model.path` names: a folder with config.json, a config.json, or a Hub name
/// ("org/name", "name", "org/name@revision") that `hub_cache` holds, or a folder of an object
/// store, of which the configuration alone is fetched. Reads the config and no weights. Throws
/// (kConfig, kData): nothing there (with how to fetch a Hub name), no config.json, or
/// weights under names or in formats that are not read.
ModelSource find_model(
    const std::string& path, const std::filesystem::path& hub_cache = hub_cache_folder());
/// Throws Error (data) if the source has no weights, with the command that fetches those of a Hub
/// model.
void require_weights(const ModelSource& source);
/// The source of a built-in model.
ModelSource preset_source(const std::string& name);

}  // namespace lockstep::model
