// Files of memory-mapped address ranges, for the message of a SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>

namespace lockstep {

/// Registers a mapping. If another program truncates a mapped file, or its disk fails, the system
/// ends the reader with SIGBUS; the handler prints the file on stderr. The first mapping installs
/// the handler, unless the program has its own.
void note_mapping(const void* begin, size_t size, const std::filesystem::path& path);
void forget_mapping(const void* begin);

}  // namespace lockstep
