// The memory of this process, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::monitor {

struct ProcessMemory {
  int64_t resident_bytes = 0;       // now (VmRSS)
  int64_t peak_resident_bytes = 0;  // the most so far (VmHWM)
};

/// Of /proc/self/status; zeros where that cannot be read.
ProcessMemory process_memory();
/// The same of a given text, for tests.
ProcessMemory parse_process_status(std::string_view text);

}  // namespace lockstep::monitor
