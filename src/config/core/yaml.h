// Parsers for untrusted YAML and JSON files. Values record their line numbers.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "config/core/value.h"

namespace lockstep::config {

/// Parses one document. Supports anchors, aliases and merge keys (<<). Throws Error (config) with
/// the line for a syntax error, a duplicate name in a map, a second document, a tag outside YAML's
/// core schema, nesting deeper than 64, more than 4 MiB of text, or more than 20,000 nodes after
/// alias expansion. Empty text is parsed as an empty map.
Value parse_yaml(std::string_view text, const std::string& source);

/// Parses JSON with line comments, block comments and trailing commas, as in DeepSpeed files. Has
/// the same limits as parse_yaml().
Value parse_json_with_comments(std::string_view text, const std::string& source);

/// Reads a file as JSON with comments if its name ends in .json, otherwise as YAML.
Value read_config_file(const std::filesystem::path& path);

/// Limits of both parsers.
inline constexpr size_t kMaximumBytes = 4 << 20;
inline constexpr size_t kMaximumNodes = 20'000;
inline constexpr int kMaximumDepth = 64;

}  // namespace lockstep::config
