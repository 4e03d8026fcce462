// What one save leaves to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_plan.h"
#include "checkpoint/write_behind.h"

namespace lockstep::checkpoint {

/// Of saves of the same state, one after the other: the files' plan, which is the same as long as
/// the pieces are, and buffers that need not be faulted in again.
struct BetweenSaves {
  std::vector<std::string> descriptions;  // of all ranks' pieces, whose plan it is
  uint64_t max_file_bytes = 0;
  FilePlan plan;
  std::optional<WriteBehind> behind;
};

}  // namespace lockstep::checkpoint
