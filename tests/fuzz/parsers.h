// Fuzz targets: functions that parse bytes of unknown origin, for tests/fuzz/fuzz.cpp.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::fuzz {

struct Parser {
  std::string_view name;
  /// Reads the bytes. Throwing Error is allowed; any other exception is a defect.
  void (*read)(std::string_view bytes);
};

std::span<const Parser> parsers();

}  // namespace lockstep::fuzz
