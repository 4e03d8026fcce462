// The entrance of libFuzzer, and of replaying: the variable LOCKSTEP_FUZZ_PARSER names the parser.
//
//   LOCKSTEP_FUZZ_PARSER=yaml fuzz_parsers CORPUS -max_total_time=20      (tools/fuzz.py does it)
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
    std::fprintf(stderr, "LOCKSTEP_FUZZ_PARSER is to name one of:\n");
    for (const lockstep::fuzz::Parser& each : lockstep::fuzz::parsers()) {
      std::fprintf(stderr, "parser %s\n", std::string(each.name).c_str());
    }
    ::_exit(2);  // libFuzzer takes exit() for a defect
  }();
  return parser;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::set_log_level(lockstep::LogLevel::kError);
  try {
    chosen().read({reinterpret_cast<const char*>(data), size});
  } catch (const lockstep::Error& error) {
    if (error.kind() == lockstep::ErrorKind::kInternal) {
      std::fprintf(stderr, "an internal error: %s\n", error.what());
      std::abort();
    }
  }
  return 0;
}
