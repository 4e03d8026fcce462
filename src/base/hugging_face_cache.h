// Location of the local Hugging Face cache.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The value of an environment variable; nothing where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> process_environment(const std::string& name);

/// ".../hub", by the variables that Hugging Face's own tools read, in their order: HF_HUB_CACHE,
/// HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder(const EnvironmentLookup& environment = process_environment);

/// ".../datasets", where `datasets` keeps Arrow files: HF_DATASETS_CACHE, else beside the Hub's.
std::filesystem::path datasets_cache_folder(
    const EnvironmentLookup& environment = process_environment);

/// A path of a user's: "~/x" is below the home folder.
std::filesystem::path expand_home(
    const std::string& path, const EnvironmentLookup& environment = process_environment);

/// The files of rows by their path without its ending: NAME.jsonl (.json, .csv, .tsv, .parquet,
/// .arrow), or in its place the parts that the Hub has, NAME-00000-of-00002.parquet, in their
/// order. Empty: there are none.
std::vector<std::filesystem::path> files_of_rows(const std::filesystem::path& name);

}  // namespace lockstep
