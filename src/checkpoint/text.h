// Printable forms of names and shapes from untrusted files for messages: short and quoted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

/// Returns "name" in quotes, with control characters escaped, cut after 120 bytes.
std::string shown(std::string_view name);
/// Returns "[2, 3]"; a shape of more than 8 dims is cut.
std::string shape_text(std::span<const int64_t> shape);
/// Returns at most `limit` items of a list joined by ", ", then "and N more".
std::string list_text(std::span<const std::string> items, size_t limit = 8);

/// True if a name from an index or a manifest is a file name without a path or "..".
bool plain_file_name(std::string_view name);

}  // namespace lockstep::checkpoint
