#pragma once

#include <cstdint>

namespace lockstep::data {

/// a / b, rounded up, of a >= 0 and b > 0, without overflow.
constexpr int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b == 0 ? 0 : 1);
}

}  // namespace lockstep::data
