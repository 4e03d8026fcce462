// Checked conversion of JSON numbers to integers. nlohmann's `get` has undefined behavior if a
// double is out of range of the integer type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace lockstep {

/// Returns an integer value. Throws nlohmann's type error for other values, including 2.0 and 2e21,
/// and its range error if the value does not fit in T.
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

/// Rounds a number toward zero, clamped to ±2^62.
inline int64_t bounded_integer_of(double number) {
  return static_cast<int64_t>(std::clamp(number, -0x1p62, 0x1p62));
}

}  // namespace lockstep
