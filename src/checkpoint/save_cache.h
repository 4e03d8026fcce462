// What one save leaves to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background_writer.h"
#include "checkpoint/file_plan.h"

namespace lockstep::checkpoint {

/// Of saves of the same state, one after the other: the files' plan, which is the same as long as
/// the pieces are, and buffers that need not be faulted in again.
struct SaveCache {
  std::vector<std::string> descriptions;  // of all ranks' pieces, whose plan it is
  uint64_t max_file_bytes = 0;
  FilePlan plan;
  std::optional<BackgroundWriter> behind;
};

}  // namespace lockstep::checkpoint
