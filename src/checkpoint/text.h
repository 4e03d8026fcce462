// Formats names and shapes of untrusted files for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

/// Returns "name" in quotes. Control characters are escaped, and names of more than 120 bytes
/// truncated.
std::string shown(std::string_view name);
/// Returns a shape such as "[2, 3]". Shapes of more than 8 dimensions are truncated.
std::string shape_text(std::span<const int64_t> shape);
/// Returns at most `limit` items of a list, joined by ", ", followed by "and N more" if there are
/// more.
std::string list_text(std::span<const std::string> items, size_t limit = 8);

/// Returns true if a name in an index or manifest is a file name without path or "..".
bool plain_file_name(std::string_view name);

}  // namespace lockstep::checkpoint
