// Monotonic time.
#pragma once

#include <chrono>

namespace lockstep {

/// Returns seconds of the steady clock; only differences are meaningful.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
