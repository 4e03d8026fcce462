// Integers in JSON of unknown origin: what comes of converting a double that no integer holds, as
// `get` would, is undefined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace lockstep {

/// The integer that a value is; of anything else, 2.0 and 2e21 too, nlohmann's type error, and of
/// one that T does not hold nlohmann's range error.
template <class T = int64_t>
T integer_of(const nlohmann::json& value) {
  const auto held = [&](auto number) {
    if (!std::in_range<T>(number)) {
      throw nlohmann::json::out_of_range::create(406, "an integer is out of range", &value);
    }
    return static_cast<T>(number);
  };
  return value.is_number_unsigned() ? held(value.get_ref<const uint64_t&>())
                                    : held(value.get_ref<const int64_t&>());
}

/// The integer next to a number towards zero, of at most 2^62.
inline int64_t bounded_integer_of(double number) {
  return static_cast<int64_t>(std::clamp(number, -0x1p62, 0x1p62));
}

}  // namespace lockstep
