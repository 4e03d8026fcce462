// `lockstep monitor --tui`: shows runs on a terminal.
#pragma once

#include <filesystem>
#include <vector>

namespace lockstep::start {

/// Shows the runs in the folders and their subfolders, one at a time, until the user presses q.
/// Throws Error (config) if there are none, or if stdin or stdout is not a terminal, and Error
/// (environment) if the type of terminal is unknown.
int watch_on_terminal(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::start
