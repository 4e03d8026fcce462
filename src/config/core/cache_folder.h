// Folder for tokenized data.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::config {

/// Returns data.cache_dir if it is set; otherwise lockstep/data in XDG_CACHE_HOME or ~/.cache;
/// otherwise a folder in /tmp/lockstep-UID. Throws Error (config) if another user owns that folder.
std::filesystem::path cache_folder(const std::string& cache_dir);

}  // namespace lockstep::config
