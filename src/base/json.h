// Parser for untrusted JSON with limits. Errors contain source, line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace lockstep {

/// Parses strict JSON (no comments). Throws an Error of `kind` with `source`, line and column for
/// invalid JSON, a duplicate key, or nesting deeper than 64.
nlohmann::json parse_json(
    std::string_view text, std::string_view source, ErrorKind kind = ErrorKind::kData);
/// Maximum size of a JSON, YAML or template file, unless its kind has another limit. Parsed JSON
/// takes up to 25 times the memory of its text.
inline constexpr uint64_t kLongestJson = uint64_t{16} << 20;
/// Maximum size of JSON files that grow with the number of tensors, rows or tokens.
inline constexpr uint64_t kLongestJsonTable = uint64_t{256} << 20;
/// The same for a file of at most `longest` bytes.
nlohmann::json read_json(
    const std::filesystem::path& path,
    ErrorKind kind = ErrorKind::kData,
    uint64_t longest = kLongestJson);

}  // namespace lockstep
