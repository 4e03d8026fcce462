// Cache that is reused between saves of the same state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background_writer.h"
#include "checkpoint/file_plan.h"

namespace lockstep::checkpoint {

/// File plan, which is valid while the pieces are the same, and write buffers whose pages are
/// already faulted in.
struct SaveCache {
  std::vector<std::string> descriptions;  // of all ranks' pieces; key of the plan
  uint64_t max_file_bytes = 0;
  FilePlan plan;
  std::optional<BackgroundWriter> behind;
};

}  // namespace lockstep::checkpoint
