// Reads and writes the list of rank locations in a run's folder.
#include "watch/record/ranks.h"

#include <algorithm>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"

namespace lockstep::watch {
namespace {

constexpr const char* kRanksName = ".lockstep-ranks";

}  // namespace

std::string to_json(const RankPlace& place) {
  const nlohmann::ordered_json line{
      {"rank", place.rank},
      {"host", place.host},
      {"process", place.process},
      {"pulse", place.rank_status.string()}};
  return line.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

RankPlace place_from_json(const std::string& line) {
  try {
    const nlohmann::json object = parse_json(line, "a rank's place", ErrorKind::kEnvironment);
    return {
        object.at("rank"),
        object.at("host"),
        object.at("process"),
        object.at("pulse").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kEnvironment, fmt::format("invalid rank location: {}", error.what()));
  }
}

void write_ranks(const std::filesystem::path& folder, const std::vector<std::string>& lines) {
  write_file_atomically(folder / kRanksName, fmt::format("{}\n", fmt::join(lines, "\n")));
}

void remove_ranks(const std::filesystem::path& folder) noexcept {
  std::error_code none;
  std::filesystem::remove(folder / kRanksName, none);
}

std::vector<RankPlace> read_ranks(const std::filesystem::path& folder) {
  std::ifstream file(folder / kRanksName);
  std::vector<RankPlace> places;
  for (std::string line; std::getline(file, line);) {
    places.push_back(place_from_json(line));
  }
  if (places.empty()) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("no run trains into {}", folder.string()),
        "`lockstep runs` lists active runs");
  }
  std::sort(places.begin(), places.end(), [](const RankPlace& a, const RankPlace& b) {
    return a.rank < b.rank;
  });
  return places;
}

std::string own_host() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace lockstep::watch
