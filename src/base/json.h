// JSON of unknown origin, read with bounds: errors name the source, the line and the column.
#pragma once

#include <filesystem>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace lockstep {

/// Parses strictly (no comments). A duplicate key, a depth of more than 64, and anything else that
/// is not JSON are Errors of `kind` that name `source`, line and column.
nlohmann::json parse_json(
    std::string_view text, std::string_view source, ErrorKind kind = ErrorKind::kData);
/// The same, of a file.
nlohmann::json read_json(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kData);

}  // namespace lockstep
