// JSON lines: files with one JSON object per line, such as the records of a run; and parsers for
// JSON that may be damaged or hostile and that its reader can do without.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

/// Maximum length of a line of a record in bytes. Longer ones count as damaged.
inline constexpr size_t kLongestLine = size_t{16} << 20;

/// Returns the JSON object in a line, or null if the line is not an object that parse_json()
/// accepts: a damaged or hostile line costs its reader only that line.
nlohmann::json parse_json_line(std::string_view line);
/// Returns any value with its keys in their order, or null if parse_json() does not accept it.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

/// Calls `body` with each complete line of a file, without its newline. Reads in blocks, so the
/// memory does not depend on the file's length. Skips lines longer than kLongestLine. A missing
/// file has no lines. Throws Error (data) if the file cannot be read.
void for_each_line(
    const std::filesystem::path& path, const std::function<void(std::string_view line)>& body);

}  // namespace lockstep
