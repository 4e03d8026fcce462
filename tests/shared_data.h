// Optional real text next to the checkout. Tests that need it are skipped if it does not exist.
#pragma once

#include <filesystem>

namespace lockstep {

/// Path of ../shared/data next to the checkout; it may not exist.
inline std::filesystem::path shared_data() {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "data";
}

}  // namespace lockstep

/// Skips the test if the file `name` (relative to ../shared/data) does not exist.
#define SKIP_WITHOUT_SHARED_DATA(name)                              \
  if (!std::filesystem::exists(::lockstep::shared_data() / (name))) \
  GTEST_SKIP() << "../shared/data/" << (name) << " is not beside the checkout"
