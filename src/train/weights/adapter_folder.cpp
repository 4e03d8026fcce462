// Finds the base model of an adapter folder.
#include "train/weights/adapter_folder.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "model/lora_config.h"
#include "model/source.h"
#include "objects/store.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

/// Returns true for a folder with an adapter and no model. Some trainers save the base's
/// config.json in the same folder.
bool has_only_adapter(const fs::path& folder) {
  return fs::exists(folder / model::kAdapterConfigName) &&
         !fs::exists(folder / "model.safetensors") &&
         !fs::exists(folder / "model.safetensors.index.json");
}

/// Returns the folder of the adapter in `path`, or nullopt.
std::optional<fs::path> find_adapter(const std::string& path) {
  if (path.empty() || objects::is_remote(path)) {
    return std::nullopt;
  }
  const fs::path folder = expand_home(path);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    return std::nullopt;
  }
  if (has_only_adapter(folder)) {
    return folder;
  }
  if (fs::exists(folder / "config.json")) {
    return std::nullopt;
  }
  const auto checkpoints = checkpoint::list_checkpoints(folder);
  return !checkpoints.empty() && has_only_adapter(checkpoints.front().folder)
             ? std::optional(checkpoints.front().folder)
             : std::nullopt;
}

bool is_available(const std::string& model) {
  std::error_code ignored;
  if (objects::is_remote(model) || fs::is_directory(expand_home(model), ignored)) {
    return true;
  }
  try {
    (void)model::find_model(model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<std::string> base_of_adapter(const std::string& path) {
  const std::optional<fs::path> adapter = find_adapter(path);
  if (!adapter) {
    return std::nullopt;
  }
  const std::string name =
      model::read_lora_config(*adapter / model::kAdapterConfigName).base_model_name_or_path;
  const std::string remedy =
      fmt::format("give the base model as --model, and the folder as --adapter {}", path);
  if (name.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is an adapter whose {} names no base model", path, model::kAdapterConfigName),
        remedy);
  }
  const fs::path beside = *adapter / name;
  if (fs::path(name).is_relative() && fs::exists(beside / "config.json")) {
    return beside.lexically_normal().string();
  }
  if (!is_available(name)) {
    const bool is_path = name.starts_with('/') || name.starts_with('.');
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} is an adapter of {}, which is neither a folder nor in the Hugging Face cache",
            path,
            name),
        is_path ? remedy : fmt::format("download it: hf download {}; or {}", name, remedy));
  }
  return name;
}

void use_adapter_folder(std::string& model, std::vector<std::string>& adapters) {
  const std::optional<std::string> base = base_of_adapter(model);
  if (!base) {
    return;
  }
  if (!adapters.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is an adapter, and --adapter gives another", model),
        fmt::format(
            "to combine them: --model {} --adapter {} --adapter {}",
            *base,
            model,
            adapters.front()));
  }
  adapters.push_back(model);
  model = *base;
}

void use_adapter_folder(config::Config& config) {
  const std::optional<std::string> base = base_of_adapter(config.model.path);
  if (!base) {
    return;
  }
  config::LoraSection others = config.lora;
  others.lora_dropout.reset();
  if (others != config::LoraSection{}) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("model.path {} is an adapter, and keys of lora are set too", config.model.path),
        fmt::format(
            "remove them to continue that adapter, set model.path={} for a new one, or merge it "
            "first: lockstep export --model {} --output FOLDER",
            *base,
            config.model.path));
  }
  config.lora.adapter = config.model.path;
  config.model.path = *base;
}

}  // namespace lockstep::train
