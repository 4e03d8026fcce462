// Conversion of strings to scalars, with the same rules for files, overrides and flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/core/value.h"

namespace lockstep::config {

/// Returns the type of a string in the grammar of Hydra's overrides: null, true and false in any
/// case, integers and floats with optional underscores between digits, inf and nan; otherwise a
/// string.
ScalarType scalar_type(std::string_view text);

/// Parses the booleans of HfArgumentParser and YAML 1.1, in any case: true yes t y 1 on, false no f
/// n 0 off.
std::optional<bool> to_bool(std::string_view text);
/// Parses a 64-bit decimal integer, or a float without a fraction below 2^53 (5e8). Underscores are
/// accepted (1_000).
std::optional<int64_t> to_integer(std::string_view text);
/// Parses any number, inf, nan, and YAML's .inf and .nan. Returns nullopt if it overflows a double.
std::optional<double> to_double(std::string_view text);
/// Returns true if the text means null: null, Null, NULL, None, ~, or empty.
bool is_null_word(std::string_view text);

/// Returns the shortest text that parses to the same double: 5e-05, 1.0, .inf.
std::string number_text(double value);

std::string lower_case(std::string_view text);

}  // namespace lockstep::config
