// Entry point for libFuzzer and for replaying inputs. LOCKSTEP_FUZZ_PARSER names the parser:
//
//   LOCKSTEP_FUZZ_PARSER=yaml fuzz_parsers CORPUS -max_total_time=20      (as in tools/fuzz.py)
//
// With LOCKSTEP_FUZZ_TELL it prints whether each input was accepted (tools/fuzz_differential.py).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fuzz/parsers.h"

namespace {

const lockstep::fuzz::Parser& chosen() {
  static const lockstep::fuzz::Parser& parser = []() -> const lockstep::fuzz::Parser& {
    const char* const name = std::getenv("LOCKSTEP_FUZZ_PARSER");
    for (const lockstep::fuzz::Parser& each : lockstep::fuzz::parsers()) {
      if (name != nullptr && each.name == name) {
        return each;
      }
    }
    std::fprintf(stderr, "LOCKSTEP_FUZZ_PARSER must be one of:\n");
    for (const lockstep::fuzz::Parser& each : lockstep::fuzz::parsers()) {
      std::fprintf(stderr, "parser %s\n", std::string(each.name).c_str());
    }
    ::_exit(2);  // libFuzzer treats exit() as a defect
  }();
  return parser;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool tells = std::getenv("LOCKSTEP_FUZZ_TELL") != nullptr;
  lockstep::set_log_level(lockstep::LogLevel::kError);
  bool is_taken = true;
  std::string why;
  try {
    chosen().read({reinterpret_cast<const char*>(data), size});
  } catch (const lockstep::Error& error) {
    is_taken = false;
    why = error.message().substr(0, error.message().find('\n'));
    if (error.kind() == lockstep::ErrorKind::kInternal) {
      std::fprintf(stderr, "an internal error: %s\n", error.what());
      std::abort();
    }
  }
  if (tells) {
    std::fprintf(stderr, "told %zu %s %s\n", size, is_taken ? "taken" : "refused", why.c_str());
  }
  return 0;
}
