// Real text that may stand beside the checkout. Tests that want it skip, saying so, where it does
// not.
#pragma once

#include <filesystem>

namespace lockstep {

/// ../shared/data beside the checkout; it may not exist.
inline std::filesystem::path shared_data() {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "data";
}

}  // namespace lockstep

/// Leaves the test, as skipped, where the real text `name` (a path below ../shared/data) is
/// missing.
#define SKIP_WITHOUT_SHARED_DATA(name)                              \
  if (!std::filesystem::exists(::lockstep::shared_data() / (name))) \
  GTEST_SKIP() << "../shared/data/" << (name) << " is not beside the checkout"
