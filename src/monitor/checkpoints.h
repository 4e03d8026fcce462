// The checkpoints of a run, by their names alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::monitor {

/// The steps of the checkpoints in a run's folder that have their names, and so are whole;
/// ascending.
std::vector<int64_t> checkpoints_of(const std::filesystem::path& folder);

}  // namespace lockstep::monitor
