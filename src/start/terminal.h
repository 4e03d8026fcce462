// `lockstep monitor --tui`: runs on a terminal.
#pragma once

#include <filesystem>
#include <vector>

namespace lockstep::start {

/// Shows the runs in and below the folders, one at a time, until q is pressed. Throws Error: config
/// if there are none, or if stdin or stdout is not a terminal; environment for an unknown terminal
/// type.
int watch_on_terminal(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::start
