// Monotonic time.
#pragma once

#include <chrono>

namespace lockstep {

/// Returns the steady clock in seconds. Only differences are meaningful.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
