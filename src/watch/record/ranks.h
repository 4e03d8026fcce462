// Where the ranks of a run are, for who looks at them from outside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::watch {

/// One rank of a run that goes on.
struct RankPlace {
  int rank = 0;
  std::string host;
  int64_t process = 0;
  std::filesystem::path rank_status;  // what it tells of itself, on its host (base/rank_status.h)
};

/// A place as a line of JSON, and back; a line that is none throws Error (environment).
std::string to_json(const RankPlace& place);
RankPlace place_from_json(const std::string& line);

/// Writes `lines` into the run's folder, or takes them away. Rank 0 calls.
void write_ranks(const std::filesystem::path& folder, const std::vector<std::string>& lines);
void remove_ranks(const std::filesystem::path& folder) noexcept;

/// The ranks of the run that trains into a folder, in order. Throws Error (environment) where none
/// does.
std::vector<RankPlace> read_ranks(const std::filesystem::path& folder);

/// This machine's name, as places have it.
std::string own_host();

}  // namespace lockstep::watch
