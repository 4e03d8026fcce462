// A file that is written in parts and stands whole or not at all.
#pragma once

#include <filesystem>
#include <functional>

#include "base/file.h"

namespace lockstep {

/// As write_file_atomically, of what `write` writes.
void replace_file(
    const std::filesystem::path& path,
    const std::function<void(File& file)>& write,
    ErrorKind kind = ErrorKind::kCheckpoint);

}  // namespace lockstep
