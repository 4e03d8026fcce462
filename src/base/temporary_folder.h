// Folder for temporary files.
#pragma once

#include <filesystem>

namespace lockstep {

/// The folder for temporary files. Error (environment) where TMPDIR names none.
std::filesystem::path temporary_folder();

}  // namespace lockstep
