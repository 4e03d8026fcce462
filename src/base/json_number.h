// Integers in JSON of unknown origin: what comes of converting a double that no integer holds, as
// `get` would, is undefined.
#pragma once

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace lockstep {

/// The integer that a value is; of anything else, 2.0 and 2e21 too, nlohmann's type error.
inline int64_t integer_of(const nlohmann::json& value) {
  return value.get_ref<const int64_t&>();
}

/// The integer next to a number towards zero, of at most 2^62.
inline int64_t bounded_integer_of(double number) {
  return static_cast<int64_t>(std::clamp(number, -0x1p62, 0x1p62));
}

}  // namespace lockstep
