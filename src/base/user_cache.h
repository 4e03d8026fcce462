// User's cache folder for files that can be created or downloaded again.
#pragma once

#include <filesystem>

namespace lockstep {

/// Returns lockstep/ in XDG_CACHE_HOME or ~/.cache, otherwise a folder of this user in /tmp. Throws
/// Error (config) if another user may write to it.
std::filesystem::path user_cache_folder();

}  // namespace lockstep
