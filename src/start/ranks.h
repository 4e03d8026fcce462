// Shows the ranks of a run from outside: `lockstep ctl RUN stacks`, `lockstep monitor --text RUN`.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::start {

/// Returns one line per rank of this machine with step, activity, its duration and pending
/// operations. The graph of waits and any hanging rank follow. Ranks of other machines are listed
/// with their hosts. `with_stacks` adds the stacks of the ranks' threads. Does not need the ranks'
/// cooperation, so it works for stopped ranks, too. Throws Error (environment) if no run uses the
/// folder.
std::string ranks_text(const std::filesystem::path& folder, bool with_stacks);

/// Prints ranks_text() every two seconds until the run ends or this process is interrupted.
int watch_ranks(const std::filesystem::path& folder);

}  // namespace lockstep::start
