// What reads bytes of unknown origin, each as a function of bytes: for tests/fuzz/fuzz.cpp.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::fuzz {

struct Parser {
  std::string_view name;
  /// Reads the bytes; an Error is an answer, and any other exception a defect.
  void (*read)(std::string_view bytes);
};

std::span<const Parser> parsers();

}  // namespace lockstep::fuzz
