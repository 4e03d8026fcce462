// Location of the local Hugging Face cache.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the value of an environment variable; nullopt if not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> process_environment(const std::string& name);

/// Returns ".../hub" from the environment variables of Hugging Face's tools, in their order:
/// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
/// ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder(const EnvironmentLookup& environment = process_environment);

/// Returns ".../datasets", where `datasets` stores Arrow files: HF_DATASETS_CACHE, otherwise next
/// to the Hub's cache.
std::filesystem::path datasets_cache_folder(
    const EnvironmentLookup& environment = process_environment);

/// Expands "~/x" to a path in the home folder.
std::filesystem::path expand_home(
    const std::string& path, const EnvironmentLookup& environment = process_environment);

/// Returns the data files with a path without extension: NAME.jsonl (.json, .csv, .tsv, .parquet,
/// .arrow), or the shards of the Hub, NAME-00000-of-00002.parquet, in order. Empty if there are
/// none.
std::vector<std::filesystem::path> files_of_rows(const std::filesystem::path& name);

}  // namespace lockstep
