// Registry of memory-mapped files, used for the message of a SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>

namespace lockstep {

/// Registers a mapping. If another program truncates a mapped file or its disk fails, the reader
/// receives SIGBUS. The handler prints the file to stderr. The first registration installs the
/// handler unless the program already has one.
void note_mapping(const void* begin, size_t size, const std::filesystem::path& path);
void forget_mapping(const void* begin);

}  // namespace lockstep
