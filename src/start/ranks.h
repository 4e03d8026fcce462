// The ranks of a run as they are now, seen from outside: `lockstep ctl RUN stacks`, `lockstep
// monitor --text RUN`.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::start {

/// One line for each rank of this machine (step, what it does, since when, the operation that it
/// waits for), who waits for whom, and who hangs, if anybody. Ranks of other machines are named
/// with their hosts. `with_stacks`: and the stacks of each rank's threads. No rank is asked, so
/// that one that is stopped is told as well. Throws Error (environment) where no run trains into
/// the folder.
std::string ranks_text(const std::filesystem::path& folder, bool with_stacks);

/// Shows ranks_text() every other second, until the run ends or this process is told to.
int watch_ranks(const std::filesystem::path& folder);

}  // namespace lockstep::start
