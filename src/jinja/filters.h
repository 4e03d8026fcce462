// Helpers shared by the filter files. Internal to jinja.
#pragma once

#include <cstdint>
#include <string>

#include "jinja/value.h"

namespace lockstep::jinja {

/// Returns an argument by position or name. Returns null if it is missing or none.
const Value* optional(const Arguments& arguments, size_t position, const char* name);
std::string text_or(
    const Arguments& arguments, size_t position, const char* name, const char* otherwise);
bool flag(const Arguments& arguments, size_t position, const char* name, bool otherwise);
/// Throws Error (data) if the value is undefined.
void check_defined(const Value& value);

/// Implement the int, float and round filters.
Value to_integer(const Value& value, const Arguments& arguments);
Value to_float(const Value& value, const Arguments& arguments);
Value rounded(const Value& value, const Arguments& arguments);

}  // namespace lockstep::jinja
