// YAML of unknown origin as a Value, each part with its line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "config/core/value.h"

namespace lockstep::config {

/// Parses one document. Anchors, aliases and merge keys (<<) are followed. Errors are
/// Error(kConfig) with the line: bad syntax, a name twice in a map, a second document, a tag that
/// is not of YAML's core, nesting deeper than 64, more than 4 MiB of text, or more than 20,000
/// nodes with aliases expanded. An empty text is an empty map.
Value parse_yaml(std::string_view text, const std::string& source);

/// JSON with line and block comments and trailing commas (as DeepSpeed's files have) as a Value,
/// each part with its line. The same bounds as parse_yaml.
Value parse_json_with_comments(std::string_view text, const std::string& source);

/// The file by its name: .json as JSON with comments, anything else as YAML.
Value read_config_file(const std::filesystem::path& path);

/// The bounds of both.
inline constexpr size_t kMaximumBytes = 4 << 20;
inline constexpr size_t kMaximumNodes = 20'000;
inline constexpr int kMaximumDepth = 64;

}  // namespace lockstep::config
