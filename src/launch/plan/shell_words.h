// Splits POSIX shell words and reads files of NAME=VALUE lines.
#pragma once

#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// Quotes a word so that a POSIX shell reads it unchanged.
std::string shell_quote(const std::string& word);
/// Splits a string into words like a POSIX shell, with quotes and backslashes. Throws Error
/// (config) if a quote is not closed.
std::vector<std::string> shell_split(const std::string& text);
/// Parses the KEY=VALUE lines of .deepspeed_env. Skips comments and blank lines. Throws Error
/// (config) for any other line.
Environment parse_environment_file(const std::string& text, const std::string& source);

}  // namespace lockstep::launch
