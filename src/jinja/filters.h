// What the files of filters share: internal to jinja.
#pragma once

#include <cstdint>
#include <string>

#include "jinja/value.h"

namespace lockstep::jinja {

/// An argument by position or name; null: not given, or none.
const Value* optional(const Arguments& arguments, size_t position, const char* name);
std::string text_or(
    const Arguments& arguments, size_t position, const char* name, const char* otherwise);
bool flag(const Arguments& arguments, size_t position, const char* name, bool otherwise);
/// Error (kData) of an undefined value.
void check_defined(const Value& value);

/// int, float and round.
Value to_integer(const Value& value, const Arguments& arguments);
Value to_float(const Value& value, const Arguments& arguments);
Value rounded(const Value& value, const Arguments& arguments);

}  // namespace lockstep::jinja
