// Parser for untrusted JSON with limits. Errors contain source, line and column.
#pragma once

#include <filesystem>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace lockstep {

/// Parses strict JSON (no comments). Throws an Error of `kind` with `source`, line and column for
/// invalid JSON, a duplicate key, or nesting deeper than 64.
nlohmann::json parse_json(
    std::string_view text, std::string_view source, ErrorKind kind = ErrorKind::kData);
/// Parses a JSON file.
nlohmann::json read_json(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kData);

}  // namespace lockstep
