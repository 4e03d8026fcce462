#include "monitor/memory.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep::monitor {
namespace {

/// The bytes of a line such as "VmHWM:\t  123456 kB"; 0 where there is none.
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

}  // namespace

ProcessMemory process_memory() {
  std::ifstream file("/proc/self/status");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return parse_process_status(text);
}

ProcessMemory parse_process_status(std::string_view text) {
  return {
      .resident_bytes = field_bytes(text, "VmRSS:"),
      .peak_resident_bytes = field_bytes(text, "VmHWM:")};
}

}  // namespace lockstep::monitor
