// Texts as numbers and words: the same rules for files, overrides and flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/core/value.h"

namespace lockstep::config {

/// What a text is by the grammar of Hydra's overrides: null, true and false in any case, integers
/// and floats with optional underscores between digits, inf and nan; anything else is a string.
ScalarType scalar_type(std::string_view text);

/// The words of HfArgumentParser and YAML 1.1: true yes t y 1 on, false no f n 0 off, in any case.
std::optional<bool> to_bool(std::string_view text);
/// A decimal integer of 64 bits, or a float without a fraction below 2^53 (5e8). Underscores as in
/// 1_000.
std::optional<int64_t> to_integer(std::string_view text);
/// Any number, inf, nan, and YAML's .inf and .nan. What is too large for a double is nothing.
std::optional<double> to_double(std::string_view text);
/// Whether a text stands for nothing: null, Null, NULL, None, ~, or empty.
bool is_null_word(std::string_view text);

/// The shortest text that reads back as the very same double: 5e-05, 1.0, .inf.
std::string number_text(double value);

std::string lower_case(std::string_view text);

}  // namespace lockstep::config
