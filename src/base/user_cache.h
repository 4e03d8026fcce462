// Cache folder of the user, for files that can be created or downloaded again.
#pragma once

#include <filesystem>

namespace lockstep {

/// lockstep/ below XDG_CACHE_HOME or ~/.cache, else a folder of this user's in /tmp: Error (config)
/// where somebody else may write to that.
std::filesystem::path user_cache_folder();

}  // namespace lockstep
