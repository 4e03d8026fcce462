// Memory usage of this process, as reported by the kernel.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::monitor {

struct ProcessMemory {
  int64_t resident_bytes = 0;       // current resident memory (VmRSS)
  int64_t peak_resident_bytes = 0;  // peak resident memory (VmHWM)
  int64_t anonymous_bytes = 0;      // resident memory without file mappings (RssAnon)
};

/// Returns the memory that processes of this machine can still allocate: MemAvailable of
/// /proc/meminfo, or less if the control group has a limit. Returns 0 if neither can be read.
int64_t available_memory();

/// Reads /proc/self/status. Returns zeros if it cannot be read.
ProcessMemory process_memory();
/// Parses the text of /proc/self/status. Public for tests.
ProcessMemory parse_process_status(std::string_view text);

}  // namespace lockstep::monitor
