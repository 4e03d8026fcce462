// Source of a model: a built-in name, a config.json, a Hugging Face folder, or a Hub name in the
// local cache.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/hugging_face_cache.h"
#include "model/generation_config.h"
#include "model/model_config.h"

namespace lockstep::model {

struct ModelSource {
  enum class Kind { kPreset, kConfigFile, kFolder, kHub };
  Kind kind = Kind::kPreset;
  std::string name;              // as given by the user
  std::filesystem::path folder;  // folder of config.json, weights and tokenizer; empty for a preset
  bool has_weights = false;      // false: random initialization
  ModelConfig config;
  GenerationConfig generation;
  std::map<std::string, std::string> kept;  // contents of kept files by name (folder_files.h)
};

/// Resolves `model.path`: a folder with config.json, a config.json, a Hub name in `hub_cache`
/// ("org/name", "name", "org/name@revision"), or a folder in an object store, of which only the
/// configuration is fetched. Reads the config but no weights. Throws Error (kConfig, kData) if
/// nothing is found (with instructions for downloading a Hub model), config.json is missing, or
/// weights have unsupported names or formats.
ModelSource find_model(
    const std::string& path, const std::filesystem::path& hub_cache = hub_cache_folder());
/// Throws Error (data) if the source has no weights. For a Hub model, the message contains the
/// download command.
void require_weights(const ModelSource& source);
/// Returns the source of a built-in model.
ModelSource preset_source(const std::string& name);

}  // namespace lockstep::model
