// The memory of this process, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::monitor {

struct ProcessMemory {
  int64_t resident_bytes = 0;       // now (VmRSS)
  int64_t peak_resident_bytes = 0;  // the most so far (VmHWM)
  int64_t anonymous_bytes = 0;      // resident, and no file's (RssAnon)
};

/// What processes of this machine can still have: /proc/meminfo's MemAvailable, or less where the
/// control group has a limit. 0 where neither can be read.
int64_t available_memory();

/// Of /proc/self/status; zeros where that cannot be read.
ProcessMemory process_memory();
/// The same of a given text, for tests.
ProcessMemory parse_process_status(std::string_view text);

}  // namespace lockstep::monitor
