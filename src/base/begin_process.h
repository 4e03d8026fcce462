// Process setup of the programs: standard streams.
#pragma once

namespace lockstep {

/// Opens /dev/null as stdin, stdout and stderr if they are closed; otherwise the next opened files
/// would get their descriptors and receive the output. Ignores SIGXFSZ, so that exceeding the file
/// size limit (ulimit -f) is an error with the file name instead of a signal.
void begin_process();

}  // namespace lockstep
