// Folder for temporary files.
#pragma once

#include <filesystem>

namespace lockstep {

/// Returns the folder for temporary files. Throws Error (environment) if TMPDIR is not a folder.
std::filesystem::path temporary_folder();

}  // namespace lockstep
