// Atomic replacement of a file that is written in several steps.
#pragma once

#include <filesystem>
#include <functional>

#include "base/file.h"

namespace lockstep {

/// Writes a file with `write` and atomically replaces `path`, like write_file_atomically().
void replace_file(
    const std::filesystem::path& path,
    const std::function<void(File& file)>& write,
    ErrorKind kind = ErrorKind::kCheckpoint);

}  // namespace lockstep
