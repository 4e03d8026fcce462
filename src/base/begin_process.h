// Process setup of the programs: standard streams.
#pragma once

namespace lockstep {

/// Opens /dev/null as stdin, stdout and stderr where these are closed: else whatever is opened next
/// has their numbers, and gets what is printed. Lets a file that would pass the limit of its size
/// (ulimit -f) be an error with its name, instead of a signal.
void begin_process();

}  // namespace lockstep
