// Listing of a run's checkpoints by folder name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::monitor {

/// Returns the steps of the complete checkpoints in a run's folder, ascending. A checkpoint gets
/// its final name only when it is complete.
std::vector<int64_t> checkpoints_of(const std::filesystem::path& folder);

}  // namespace lockstep::monitor
