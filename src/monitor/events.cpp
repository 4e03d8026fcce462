// Implements the writer of events.jsonl and the build hash of this program.
#include "monitor/events.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace lockstep::monitor {
namespace {

constexpr size_t kPiece = size_t{256} << 10;  // bytes
constexpr size_t kBuildDigits = 12;

/// Reads in blocks; a memory mapping would count towards the memory of the run.
std::string hash_of(const std::filesystem::path& path) {
  const File file(path, File::Mode::kRead);
  Hasher hasher;
  std::vector<std::byte> piece(kPiece);
  const uint64_t size = file.size();
  for (uint64_t at = 0; at < size; at += kPiece) {
    const std::span<std::byte> part =
        std::span(piece).first(static_cast<size_t>(std::min<uint64_t>(kPiece, size - at)));
    file.read_at(at, part);
    hasher.update(part);
  }
  return hasher.hex();
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder)
    : file_(LineFile::at_end(folder / kEventsName)) {}

void EventFile::log(
    double wall_time, int64_t step, std::string_view name, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json line{
      {"time", std::round(wall_time * 1000) / 1000}, {"step", step}, {"event", name}};
  line.update(fields);
  file_.append(
      line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace));
}

nlohmann::ordered_json program_identity() {
  nlohmann::ordered_json identity{{"version", LOCKSTEP_VERSION}};
  try {
    identity["build"] = hash_of("/proc/self/exe").substr(0, kBuildDigits);
  } catch (const Error&) {  // without /proc, the hash is omitted
  }
  return identity;
}

}  // namespace lockstep::monitor
