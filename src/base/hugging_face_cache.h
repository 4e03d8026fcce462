// Location of the local Hugging Face cache.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Function that returns the value of an environment variable, or nullopt if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> process_environment(const std::string& name);

/// Returns the Hub cache folder. Checks the environment variables of Hugging Face's tools in their
/// order: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
/// ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder(const EnvironmentLookup& environment = process_environment);

/// Returns the folder in which `datasets` stores Arrow files: HF_DATASETS_CACHE, otherwise
/// `datasets` next to the Hub cache.
std::filesystem::path datasets_cache_folder(
    const EnvironmentLookup& environment = process_environment);

/// Expands "~/x" to a path in the home folder.
std::filesystem::path expand_home(
    const std::string& path, const EnvironmentLookup& environment = process_environment);

/// Returns the data files for a path without extension: NAME.jsonl (.json, .csv, .tsv, .parquet,
/// .arrow), or shards from the Hub, NAME-00000-of-00002.parquet, in order. Empty if there are none.
std::vector<std::filesystem::path> files_of_rows(const std::filesystem::path& name);

}  // namespace lockstep
