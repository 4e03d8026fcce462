// Lists the checkpoints of a run by folder name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::monitor {

/// Returns the steps of the complete checkpoints in a run's folder, ascending. A checkpoint is
/// complete if its folder has its final name.
std::vector<int64_t> checkpoints_of(const std::filesystem::path& folder);

}  // namespace lockstep::monitor
