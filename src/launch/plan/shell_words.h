// Words as a POSIX shell reads them, and files of NAME=VALUE lines.
#pragma once

#include <string>
#include <vector>

#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// A word as a POSIX shell reads it back.
std::string shell_quote(const std::string& word);
/// Splits as a POSIX shell splits words: quotes and backslashes. Error (config) where a quote is
/// open.
std::vector<std::string> shell_split(const std::string& text);
/// KEY=VALUE lines of .deepspeed_env; comments and blank lines are skipped. Error (config) for
/// another line.
Environment parse_environment_file(const std::string& text, const std::string& source);

}  // namespace lockstep::launch
