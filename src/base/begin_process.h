// Process setup shared by all programs.
#pragma once

namespace lockstep {

/// Opens /dev/null for closed stdin, stdout and stderr. Otherwise files opened later would get
/// their descriptors and receive the output. Ignores SIGXFSZ so that exceeding the file size limit
/// (ulimit -f) is an error with the file name instead of a signal.
void begin_process();

}  // namespace lockstep
