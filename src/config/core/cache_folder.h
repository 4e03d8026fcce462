// Default folder for tokenized data.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::config {

/// data.cache_dir where it is given, else lockstep/data below XDG_CACHE_HOME or ~/.cache, else
/// below /tmp/lockstep-UID. Error (config) where another user made that.
std::filesystem::path cache_folder(const std::string& cache_dir);

}  // namespace lockstep::config
