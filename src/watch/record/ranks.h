// Locations of the ranks of a run, for tools outside of the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::watch {

/// Location of a rank of an active run.
struct RankPlace {
  int rank = 0;
  std::string host;
  int64_t process = 0;
  std::filesystem::path rank_status;  // status file of the rank on its host (base/rank_status.h)
};

/// Convert a location to and from a line of JSON. place_from_json() throws Error (environment) if
/// the line is invalid.
std::string to_json(const RankPlace& place);
RankPlace place_from_json(const std::string& line);

/// Write `lines` to the run's folder, or remove the file. Called on rank 0.
void write_ranks(const std::filesystem::path& folder, const std::vector<std::string>& lines);
void remove_ranks(const std::filesystem::path& folder) noexcept;

/// Returns the ranks of the run that is active in a folder, in order. Throws Error (environment) if
/// no run is active.
std::vector<RankPlace> read_ranks(const std::filesystem::path& folder);

/// Returns this machine's name as used in locations.
std::string own_host();

}  // namespace lockstep::watch
