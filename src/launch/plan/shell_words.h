// POSIX shell word splitting, and files of NAME=VALUE lines.
#pragma once

#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// Quotes a word so that a POSIX shell reads it back unchanged.
std::string shell_quote(const std::string& word);
/// Splits words as a POSIX shell does: quotes and backslashes. Throws Error (config) for an open
/// quote.
std::vector<std::string> shell_split(const std::string& text);
/// Parses the KEY=VALUE lines of .deepspeed_env; comments and blank lines are skipped. Throws Error
/// (config) for any other line.
Environment parse_environment_file(const std::string& text, const std::string& source);

}  // namespace lockstep::launch
