#pragma once

#include <cstdint>

namespace lockstep::data {

/// Returns a / b, rounded up, without overflow. Requires a >= 0 and b > 0.
constexpr int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b == 0 ? 0 : 1);
}

}  // namespace lockstep::data
