// Conversion of text to numbers, independent of the process's locale.
#pragma once

namespace lockstep {

/// Variant of std::strtod in which the decimal separator is always a point. Applications that use
/// the library may set a locale with a comma.
double parse_double(const char* text, char** end = nullptr);

}  // namespace lockstep
