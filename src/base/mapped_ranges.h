// Files of mapped address ranges, for the message of a SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>

namespace lockstep {

/// Notes a mapping. Where a mapped file is cut off by another program, or its disk does not answer,
/// the system ends who reads it with SIGBUS; a line on stderr then names the file. The first
/// mapping installs the handler, where the program has none of its own.
void note_mapping(const void* begin, size_t size, const std::filesystem::path& path);
void forget_mapping(const void* begin);

}  // namespace lockstep
