// Reads the counters of the memory cgroup.
#include "launch/system/oom_explanation.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/format.h"

namespace lockstep::launch {
namespace {

// A larger limit means that there is none: version 1 uses LONG_MAX rounded to a page.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<std::string> text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> number_in(const std::filesystem::path& path) {
  const std::optional<std::string> text = text_of(path);
  int64_t value = 0;
  if (!text ||
      std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc()) {
    return std::nullopt;
  }
  return value;
}

// Returns the value of the line "NAME VALUE".
std::optional<int64_t> field_in(const std::filesystem::path& path, const std::string& name) {
  const std::optional<std::string> text = text_of(path);
  if (!text) {
    return std::nullopt;
  }
  std::istringstream lines(*text);
  std::string field;
  int64_t value = 0;
  while (lines >> field >> value) {
    if (field == name) {
      return value;
    }
  }
  return std::nullopt;
}

struct Membership {
  std::string version1, version2;  // the paths in /proc/self/cgroup
  bool has_memory1 = false;
};

Membership membership() {
  Membership result;
  std::istringstream lines(text_of("/proc/self/cgroup").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers =
        fmt::format(",{},", std::string_view(line).substr(first + 1, second - first - 1));
    if (controllers == ",,") {
      result.version2 = line.substr(second + 1);
    } else if (controllers.find(",memory,") != std::string::npos) {
      result.version1 = line.substr(second + 1);
      result.has_memory1 = true;
    }
  }
  return result;
}

// In a container, the path may be relative to a root that is not mounted. The cgroup is then at the
// mount point itself.
std::filesystem::path folder_with(
    const std::filesystem::path& mount, const std::string& path, const char* file) {
  std::error_code ignored;
  const std::filesystem::path inside = mount / std::filesystem::path(path).relative_path();
  return std::filesystem::exists(inside / file, ignored) ? inside : mount;
}

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

std::optional<MemoryCounters> read_memory_counters() {
  const Membership member = membership();
  MemoryCounters result;
  for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    const auto folder = folder_with(mount, member.version2, "memory.events");
    if (const auto kills = field_in(folder / "memory.events", "oom_kill")) {
      result.kills = *kills;
      result.limit = number_in(folder / "memory.max");
      result.peak = number_in(folder / "memory.peak");
      result.folder = folder.string();
      return result;
    }
  }
  if (member.has_memory1) {
    const auto folder = folder_with("/sys/fs/cgroup/memory", member.version1, "memory.oom_control");
    if (const auto kills = field_in(folder / "memory.oom_control", "oom_kill")) {
      result.kills = *kills;
      result.limit = number_in(folder / "memory.limit_in_bytes");
      if (result.limit && *result.limit > kNoLimit) {
        result.limit.reset();
      }
      result.peak = number_in(folder / "memory.max_usage_in_bytes");
      result.folder = folder.string();
      return result;
    }
  }
  return std::nullopt;
}

std::string oom_explanation(
    const std::optional<MemoryCounters>& before, const std::optional<MemoryCounters>& after) {
  if (!after) {
    return "no memory cgroup is readable; see `dmesg` for out-of-memory kills";
  }
  const std::string limit =
      fmt::format("limit {}", after->limit ? gibibytes(*after->limit) : std::string("none"));
  const std::string peak =
      after->peak ? fmt::format(", peak {}", gibibytes(*after->peak)) : std::string();
  const int64_t kills = after->kills - (before ? before->kills : 0);
  if (kills > 0) {
    return fmt::format(
        "out of memory: the kernel killed {} process{} of this cgroup ({}{})",
        kills,
        kills == 1 ? "" : "es",
        limit,
        peak);
  }
  return fmt::format(
      "not killed for memory by this cgroup ({}{}): another process sent the signal, or the whole "
      "machine ran out of memory (see `dmesg`)",
      limit,
      peak);
}

}  // namespace lockstep::launch
