// A mapped file that another program cuts, or whose disk fails, is a SIGBUS where its bytes are
// read. This says which file it was before the process ends by that signal.
#pragma once

#include <cstddef>
#include <filesystem>

namespace lockstep {

/// Remembers that [data, data + size) is a file's. The first call installs the handler, unless the
/// program has one of its own.
void guard_mapping(const void* data, size_t size, const std::filesystem::path& path);
/// Forgets it; before it is unmapped.
void forget_mapping(const void* data);

}  // namespace lockstep
