// Reads TERM and NO_COLOR.
#include "base/terminal.h"

#include <cstdlib>
#include <string_view>

#include <unistd.h>

namespace lockstep {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool has_control_sequences(int descriptor) {
  return ::isatty(descriptor) == 1 && variable("TERM") != "dumb";
}

bool has_colours(int descriptor) {
  return has_control_sequences(descriptor) && variable("NO_COLOR").empty();
}

}  // namespace lockstep
