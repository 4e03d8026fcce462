// Ranks of a run as seen from outside: `lockstep ctl RUN stacks`, `lockstep monitor --text RUN`.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::start {

/// Returns one line per rank of this machine (step, activity, since when, pending operation), the
/// graph of waits, and any hanging rank. Ranks of other machines are listed with their hosts.
/// `with_stacks` adds the stacks of each rank's threads. Works without the ranks' cooperation, also
/// for stopped ranks. Throws Error (environment) if no run uses the folder.
std::string ranks_text(const std::filesystem::path& folder, bool with_stacks);

/// Prints ranks_text() every two seconds until the run ends or this process is stopped.
int watch_ranks(const std::filesystem::path& folder);

}  // namespace lockstep::start
