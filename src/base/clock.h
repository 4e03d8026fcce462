// Time that only goes forward.
#pragma once

#include <chrono>

namespace lockstep {

/// Seconds of the steady clock, whose zero means nothing: for differences.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
