// Conversion of strings to scalars. Files, overrides and flags use the same rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/core/value.h"

namespace lockstep::config {

/// Returns the type of a string according to Hydra's override grammar: null, true and false in any
/// case; integers and floats with optional underscores between digits; inf and nan; otherwise a
/// string.
ScalarType scalar_type(std::string_view text);

/// Parses booleans as HfArgumentParser and YAML 1.1 do, in any case: true yes t y 1 on, false no f
/// n 0 off.
std::optional<bool> to_bool(std::string_view text);
/// Parses a 64-bit decimal integer, or a float without a fraction below 2^53 (5e8). Allows
/// underscores (1_000).
std::optional<int64_t> to_integer(std::string_view text);
/// Parses numbers, inf, nan, .inf and .nan. Returns nullopt on overflow.
std::optional<double> to_double(std::string_view text);
/// Returns true for null, Null, NULL, None, ~ and the empty string.
bool is_null_word(std::string_view text);

/// Returns the shortest text that parses to the same double: 5e-05, 1.0, .inf.
std::string number_text(double value);

std::string lower_case(std::string_view text);

}  // namespace lockstep::config
