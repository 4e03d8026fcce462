// `lockstep monitor --tui`: runs on a terminal.
#pragma once

#include <filesystem>
#include <vector>

namespace lockstep::start {

/// Shows the runs at and below the folders, one at a time, until q is pressed. Throws Error: config
/// where there are none, or stdin and stdout are no terminal; environment where the terminal is not
/// known.
int watch_on_terminal(const std::vector<std::filesystem::path>& folders);

}  // namespace lockstep::start
