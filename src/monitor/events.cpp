// Implements the writer of events.jsonl and the build hash of this program.
#include "monitor/events.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep::monitor {
namespace {

constexpr size_t kPiece = size_t{256} << 10;  // bytes
constexpr size_t kBuildDigits = 12;

File open_to_append(const std::filesystem::path& path) {
  return {path, std::filesystem::exists(path) ? File::Mode::kWrite : File::Mode::kCreate};
}

bool ends_torn(const File& file) {
  if (file.size() == 0) {
    return false;
  }
  std::array<std::byte, 1> last{};
  file.read_at(file.size() - 1, last);
  return last[0] != std::byte{'\n'};
}

/// Reads in blocks, because a memory mapping would count towards the memory of the run.
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
    : file_(open_to_append(folder / kEventsName)),
      end_(file_.size()) {
  if (ends_torn(file_)) {
    file_.write_at(end_++, std::as_bytes(std::span("\n", 1)));
  }
}

void EventFile::log(
    double wall_time, int64_t step, std::string_view name, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json line{
      {"time", std::round(wall_time * 1000) / 1000}, {"step", step}, {"event", name}};
  line.update(fields);
  const std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) + "\n";
  file_.write_at(end_, std::as_bytes(std::span(text)));
  end_ += text.size();
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
