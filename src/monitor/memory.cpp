// Reads process memory and available memory from /proc and the control group.
#include "monitor/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace lockstep::monitor {
namespace {

/// Returns the bytes of a line such as "VmHWM:\t  123456 kB", or 0 if there is none.
int64_t field_bytes(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos || (at > 0 && text[at - 1] != '\n')) {
    return 0;
  }
  text.remove_prefix(at + name.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t kibibytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), kibibytes);
  return kibibytes * 1024;
}

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Reads a number from a file. Returns nullopt if the file is missing or contains "max".
std::optional<int64_t> number_in(const char* path) {
  const std::string text = text_of(path);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

}  // namespace

int64_t available_memory() {
  const int64_t machine = field_bytes(text_of("/proc/meminfo"), "MemAvailable:");
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  return limit && used ? std::min(machine, std::max<int64_t>(*limit - *used, 0)) : machine;
}

ProcessMemory process_memory() {
  return parse_process_status(text_of("/proc/self/status"));
}

ProcessMemory parse_process_status(std::string_view text) {
  return {
      .resident_bytes = field_bytes(text, "VmRSS:"),
      .peak_resident_bytes = field_bytes(text, "VmHWM:"),
      .anonymous_bytes = field_bytes(text, "RssAnon:")};
}

}  // namespace lockstep::monitor
